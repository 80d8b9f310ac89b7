package vendors

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// ours are the request fields that Keystone itself acts on; no vendor sees them.
var ours = []string{
	"effort", "attributes", "action_id", "model_override", "placement", "auto_route", "effort_specified", "enable_cache", "strict_params",
}

// partOf are fields that say more about another one, which has the row.
var partOf = map[string]Field{
	"messages.role":                     SystemTurns,
	"messages.tool_calls.id":            ToolCalls,
	"messages.tool_calls.name":          ToolCalls,
	"messages.tool_calls.arguments":     ToolCalls,
	"messages.parts.image.mime_type":    PartImageData,
	"messages.parts.audio.data":         PartAudio,
	"messages.parts.audio.format":       PartAudio,
	"messages.parts.document.mime_type": PartDocumentData,
	"messages.parts.embedding.model":    PartEmbedding,
	"messages.parts.embedding.vector":   PartEmbedding,
	"tools.name":                        Tools,
	"tool_choice.mode":                  ToolChoiceAuto,
}

// Every field of a request is either Keystone's own or has a row in each dialect's table: a new field that nobody
// thought of would be lost without a word.
func TestEveryRequestFieldIsKnown(t *testing.T) {
	all := Fields()
	var walk func(prefix string, m protoreflect.MessageDescriptor)
	walk = func(prefix string, m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			path := prefix + string(field.Name())
			switch {
			case slices.Contains(ours, path), partOf[path] != "", slices.Contains(all, Field(path)) && field.Message() == nil,
				field.IsMap() && slices.Contains(all, Field(path)):
			case field.Message() != nil && field.Message().FullName() == "google.protobuf.Struct":
				if !slices.Contains(all, Field(path)) {
					t.Errorf("%s has no row", path)
				}
			case field.Message() != nil && !field.IsMap():
				walk(path+".", field.Message())
			default:
				t.Errorf("%s has no row", path)
			}
		}
	}
	walk("", (&ktmsv1.GenerateTextRequest{}).ProtoReflect().Descriptor())
	for _, f := range all {
		if f.Param() == "" || strings.Count(strings.Join(names(all), " ")+" ", string(f)+" ") == 0 {
			t.Errorf("%s has no name", f)
		}
	}
}

func names(all []Field) (out []string) {
	for _, f := range all {
		out = append(out, string(f))
	}
	return out
}

func TestLedger(t *testing.T) {
	table := Table{Temperature: {How: Native}, TopP: {How: Translated}, TopK: {How: Dropped}, PartAudio: {How: Refused}}
	l := NewLedger("v", table)
	if !l.Carries(Temperature, true) || !l.Carries(TopP, true) || l.Carries(Temperature, false) || l.Carries(TopK, false) || l.Carries(PartAudio, false) {
		t.Error("what is asked for and carried is written, nothing else")
	}
	if dropped, err := l.Close(true); dropped != nil || err != nil {
		t.Errorf("nothing was lost: %v %v", dropped, err)
	}
	l.Carries(TopK, true)
	l.Carries(TopK, true)
	l.Drop("store")
	if dropped, err := l.Close(false); !slices.Equal(dropped, []string{"top_k", "store"}) || err != nil {
		t.Errorf("%v %v", dropped, err)
	}
	_, err := l.Close(true)
	if err == nil || err.Kind != Unsupported || err.Param != "top_k" || err.Vendor != "v" {
		t.Errorf("strict: %v", err)
	}
	many := NewLedger("v", table)
	for i := range 100_000 {
		many.Drop(strconv.Itoa(i) + strings.Repeat("x", i%300))
	}
	if dropped, _ := many.Close(false); len(dropped) != maxDropped+1 || len(strings.Join(dropped, ",")) > 8<<10 {
		t.Errorf("%d names, %d bytes", len(dropped), len(strings.Join(dropped, ",")))
	}
	l = NewLedger("v", table)
	l.Carries(PartAudio, true)
	l.Wrong("later", "comes too late")
	if _, err := l.Close(false); err == nil || err.Kind != Unsupported || err.Param != "input_audio" || errors.Unwrap(err) != nil {
		t.Errorf("%v", err)
	}
}

func TestOpaque(t *testing.T) {
	sealed := SealOpaque("dialect", "model/1.5", []byte("state \x00\xff"))
	if got := OpenOpaque("dialect", "model/1.5", sealed); string(got) != "state \x00\xff" {
		t.Errorf("%q", got)
	}
	for _, other := range []string{"", "x", sealed[1:], sealed + "!", SealOpaque("dialect", "other", []byte("s")), SealOpaque("another", "model/1.5", []byte("s"))} {
		if got := OpenOpaque("dialect", "model/1.5", other); got != nil {
			t.Errorf("%q opened as %q", other, got)
		}
	}
	if SealOpaque("d", "m", nil) != "" {
		t.Error("no state is no text")
	}
}
