package gemini

import (
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// A history may repeat one id as often as it likes, which must not cost more than other ids do.
func TestEqualIDsTakeLinearTime(t *testing.T) {
	const n = 100_000
	pairs, block, orphans := with(say(user, "hi")), with(say(user, "hi")), with(say(user, "hi"))
	many := &ktmsv1.Message{Role: assistant}
	for range n {
		pairs.Messages = append(pairs.Messages, asks(call("c", "f", "{}")), result("c", "x"))
		many.ToolCalls = append(many.ToolCalls, call("c", "f", "{}"))
		orphans.Messages = append(orphans.Messages, result("c", "x"))
	}
	block.Messages = append(block.Messages, many)
	for range n {
		block.Messages = append(block.Messages, result("c", "x"))
	}
	for name, c := range map[string]struct {
		req  *ktmsv1.GenerateTextRequest
		want bool
	}{"pairs": {pairs, true}, "one turn": {block, true}, "orphans": {orphans, false}} {
		start := time.Now()
		if _, failed := encode(target("gemini-2.5-pro"), c.req); (failed == nil) != c.want {
			t.Errorf("%s: %v", name, failed)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
}
