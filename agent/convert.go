package agent

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// timestamp converts a time; the zero time is an absent one.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// optionalTime converts a time that may be absent.
func optionalTime(field string, m *timestamppb.Timestamp) (*time.Time, error) {
	if m == nil {
		return nil, nil
	}
	if err := m.CheckValid(); err != nil {
		return nil, invalid(field, "is no valid time")
	}
	t := m.AsTime()
	return &t, nil
}

// duration converts a duration that may be absent, which is 0.
func duration(field string, m *durationpb.Duration) (time.Duration, error) {
	d, err := optionalDuration(field, m)
	if d == nil {
		return 0, err
	}
	return *d, err
}

// optionalDuration converts a duration whose absence means something of its own.
func optionalDuration(field string, m *durationpb.Duration) (*time.Duration, error) {
	if m == nil {
		return nil, nil
	}
	if err := m.CheckValid(); err != nil {
		return nil, invalid(field, "is no valid duration")
	}
	d := m.AsDuration() // saturates after 292 years
	if d < 0 {
		return nil, invalid(field, fmt.Sprintf("is %v, must not be negative", d))
	}
	return &d, nil
}

func optionalInt(v *int32) *int {
	if v == nil {
		return nil
	}
	i := int(*v)
	return &i
}

// checkEnums refuses values that the API does not define in the message's own
// fields: to take one of a newer client for the default would do something else
// than what was asked for.
func checkEnums(prefix string, m proto.Message) error {
	r := m.ProtoReflect()
	for _, fd := range enumFields(r.Descriptor()) {
		number := r.Get(fd).Enum()
		if fd.Enum().Values().ByNumber(number) != nil {
			continue
		}
		field := string(fd.Name())
		if prefix != "" {
			field = prefix + "." + field
		}
		return invalid(field, fmt.Sprintf("is %d, which this version does not know", number))
	}
	return nil
}

// enumFieldLists has what enumFields has found, by message: it is asked for each start.
var enumFieldLists sync.Map // of protoreflect.FullName to []protoreflect.FieldDescriptor

// enumFields are a message's own fields that hold one enum value.
func enumFields(message protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if list, ok := enumFieldLists.Load(message.FullName()); ok {
		return list.([]protoreflect.FieldDescriptor)
	}
	var list []protoreflect.FieldDescriptor
	for i := range message.Fields().Len() {
		if fd := message.Fields().Get(i); fd.Kind() == protoreflect.EnumKind && !fd.IsList() && !fd.IsMap() {
			list = append(list, fd)
		}
	}
	enumFieldLists.Store(message.FullName(), list)
	return list
}
