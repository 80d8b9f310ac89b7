package nodes

import (
	"testing"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/vendors"
)

// TestPrefixes: a conversation that goes on begins like before, and nobody else's does.
func TestPrefixes(t *testing.T) {
	turn := func(role ktmsv1.MessageRole, text string) *ktmsv1.Message {
		return &ktmsv1.Message{Role: role, Text: text}
	}
	user, model := ktmsv1.MessageRole_MESSAGE_ROLE_USER, ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT
	short := &ktmsv1.GenerateTextRequest{BaseSystemInstruction: "s", Messages: []*ktmsv1.Message{turn(user, "a")}, Seed: new(int64(1))}
	long := &ktmsv1.GenerateTextRequest{BaseSystemInstruction: "s", Messages: []*ktmsv1.Message{turn(user, "a"), turn(model, "b"), turn(user, "c")}}
	of := func(tenant string, req *ktmsv1.GenerateTextRequest, name string) map[selection.Key]bool {
		keys := map[selection.Key]bool{}
		for _, p := range wantText(vendors.Target{Model: name, Visit: vendors.Visit{Tenant: tenant, PromptTokens: 100}}, req).prefixes() {
			keys[p.Key] = true
		}
		return keys
	}
	shared := func(a, b map[selection.Key]bool) (n int) {
		for key := range a {
			if b[key] {
				n++
			}
		}
		return n
	}
	before := of("t", short, "m")
	if got := shared(before, of("t", long, "m")); got != len(before) || got != 2 {
		t.Errorf("the longer conversation shares %d beginnings of %d", got, len(before))
	}
	if got := shared(before, of("u", short, "m")); got != 0 {
		t.Errorf("another tenant shares %d", got)
	}
	if got := shared(before, of("t", short, "n")); got != 0 {
		t.Errorf("another model shares %d", got)
	}
	if got := shared(before, of("t", &ktmsv1.GenerateTextRequest{BaseSystemInstruction: "s", Messages: short.Messages,
		Tools: []*ktmsv1.Tool{{Name: "f"}}}, "m")); got != 0 {
		t.Errorf("other tools share %d", got)
	}
}
