// Package jupyter encodes, signs, checks and decodes messages of the Jupyter
// messaging protocol (https://jupyter-client.readthedocs.io/en/stable/messaging.html).
//
// A message on the wire is a list of frames:
//
//	[identity...] <IDS|MSG> signature header parent_header metadata content [buffer...]
//
// where the signature is the hexadecimal HMAC-SHA256 of the four JSON frames
// under the connection's key. Code that runs in a kernel can read that key, so
// a good signature says that a message comes from the right kernel, not that it
// is harmless: everything decoded here has a limit.
//
// The package does no input or output, keeps no state about executions, and
// starts no goroutines.
package jupyter
