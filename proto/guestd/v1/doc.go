// Package guestdv1 is the Go form of the API guestd.v1: messages, clients and
// server interfaces, all generated from the .proto files beside it. The
// conventions that hold for every message are at the head of common.proto.
//
// It is data and stubs alone: it dials nothing, serves nothing and starts nothing.
package guestdv1
