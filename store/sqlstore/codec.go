package sqlstore

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Empty values as they are stored; reading them takes no parser.
const (
	emptyList   = "[]"
	emptyObject = "{}"
)

// lenient reads what a newer release wrote: during a rolling upgrade its fields and enum values are unknown here.
var lenient = protojson.UnmarshalOptions{DiscardUnknown: true}

func encodeMessage(message proto.Message) (string, error) {
	text, err := protojson.Marshal(message)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", message.ProtoReflect().Descriptor().Name(), err)
	}
	return string(text), nil
}

func decodeMessage(text string, into proto.Message) error {
	if text == emptyObject {
		return nil
	}
	if err := lenient.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("decode %s: %w", into.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}

func encodeList(list []string) (string, error) {
	if len(list) == 0 {
		return emptyList, nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

func decodeList(text string) ([]string, error) {
	if text == emptyList {
		return nil, nil
	}
	var list []string
	err := json.Unmarshal([]byte(text), &list)
	return list, err
}

// instant is a time as both databases keep it.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// optionalInstant is nil, which becomes NULL, for the zero time.
func optionalInstant(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return instant(t)
}
