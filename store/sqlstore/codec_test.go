package sqlstore

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// TestReadWhatANewerReleaseWrote: fields and enum values that are unknown here are left out, the rest is read.
func TestReadWhatANewerReleaseWrote(t *testing.T) {
	const spec = `{"id":"gpt", "efforts":["EFFORT_LOW","EFFORT_COSMIC"], "newField":{"deep":[1]}, "rpm":5}`
	got := new(ktmsv1.ModelSpec)
	if err := decodeMessage(spec, got); err != nil {
		t.Fatal(err)
	}
	want := &ktmsv1.ModelSpec{Id: "gpt", Efforts: []ktmsv1.Effort{ktmsv1.Effort_EFFORT_LOW}, Rpm: 5}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMessages(t *testing.T) {
	for _, want := range []*ktmsv1.APIKeyPolicy{nil, {}, {RpmLimit: 1, AllowedModels: []string{"a"}}} {
		text, err := encodeMessage(want)
		if err != nil {
			t.Fatal(err)
		}
		got := new(ktmsv1.APIKeyPolicy)
		if err := decodeMessage(text, got); err != nil || !proto.Equal(got, proto.CloneOf(want)) && want != nil {
			t.Errorf("%v became %s, then %v, %v", want, text, got, err)
		}
	}
	err := decodeMessage(`{"rpmLimit":"many"}`, new(ktmsv1.APIKeyPolicy))
	if err == nil || !strings.HasPrefix(err.Error(), "decode APIKeyPolicy: ") {
		t.Errorf("reading nonsense: %v", err)
	}
}

func TestLists(t *testing.T) {
	for _, test := range []struct{ list, want []string }{
		{nil, nil}, {[]string{}, nil}, {[]string{"a", `"b",`}, []string{"a", `"b",`}},
	} {
		text, err := encodeList(test.list)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeList(text); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q became %s, then %q, %v", test.list, text, got, err)
		}
	}
	if _, err := decodeList("nonsense"); err == nil {
		t.Error("nonsense was read")
	}
}
