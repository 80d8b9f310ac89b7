package claude

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ai-process/ktms/vendors"
)

func signed(signature string) Thought { return Thought{Thinking: "t", Signature: signature} }

// spell writes a turn in short.
func spell(o Order, text string, calls ...string) string {
	pieces, _ := o.Arrange(text, calls)
	var words []string
	for _, p := range pieces {
		switch {
		case p.Thought != nil:
			words = append(words, p.Thought.Signature+p.Thought.Redacted)
		case p.Call >= 0:
			words = append(words, calls[p.Call]+fmt.Sprint(p.Call))
		case p.Text != "":
			words = append(words, fmt.Sprintf("%q", p.Text))
		}
	}
	return strings.Join(words, " ")
}

func TestOrder(t *testing.T) {
	var o Order
	if o.Seal("d", "m") != "" || o.Thinks() {
		t.Error("no thoughts are no state")
	}
	o.Text(3)
	o.Think(Thought{Thinking: "unsigned"})
	if o.Seal("d", "m") != "" {
		t.Error("what need not come back is a state")
	}
	o = Order{}
	o.Think(signed("S1"))
	o.Text(0) // an empty block
	o.Think(signed("S2"))
	o.Text(2)
	o.Text(1)
	o.Call("c")
	o.Think(Thought{Redacted: "R"})
	o.Call("c")
	o.Text(9)
	o = Open("d", "m", o.Seal("d", "m"))
	if got := spell(o, "Ä1 and more", "b", "c", "c"); got != `S1 S2 "Ä1" c1 R " and more" b0 c2` {
		t.Error(got)
	}
	for text, want := range map[string]string{"": "S1 S2 R", "xyÄ": `S1 S2 R "xyÄ"`, "x": `S1 S2 R "x"`} {
		if got := spell(o, text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
	if pieces, whole := o.Arrange("xyÄ", nil); !whole || !pieces[len(pieces)-1].Rest {
		t.Errorf("%+v", pieces)
	}
	if other := Open("d", "other", o.Seal("d", "m")); other.Thinks() {
		t.Error("another model's")
	}
}

// TestMadeUpStates: what a caller made up does not go out.
func TestMadeUpStates(t *testing.T) {
	for _, state := range []string{
		`[{"type":"image"}]`, `[{"type":"thinking","thinking":1,"signature":"s"}]`, `[{"type":"thinking","signature":"s"}]`, `[{"type":"thinking","thinking":"t"}]`,
		`[{"type":"redacted_thinking"}]`, `["a",null]`, `{}`, `[-1]`, `[0]`, `[[]]`, `[""]`, `[1.5]`, `[`, `null`,
	} {
		if o := Open("d", "m", vendors.SealOpaque("d", "m", []byte(state))); len(o.steps) > 0 {
			t.Errorf("%s: %v", state, o)
		}
	}
	o := Open("d", "m", vendors.SealOpaque("d", "m", []byte(`[{"type":"thinking","thinking":"<t>","signature":"s","cache_control":{"type":"ephemeral"}}]`)))
	if got := string(o.steps[0].thought.AppendJSON(nil)); got != `{"type":"thinking","thinking":"<t>","signature":"s"}` {
		t.Error(got)
	}
}

// TestLongOrders: thousands of thoughts and calls take no time.
func TestLongOrders(t *testing.T) {
	const n = 100_000
	var o Order
	calls := make([]string, n)
	for i := range n {
		o.Think(signed("s"))
		o.Call("a")
		calls[i] = "a"
	}
	began := time.Now()
	if pieces, _ := o.Arrange("", calls); len(pieces) != 2*n+1 || time.Since(began) > time.Minute {
		t.Errorf("%d pieces in %v", len(pieces), time.Since(began))
	}
}

// FuzzOpen: whatever a caller sends for a state, every text and every call comes out once, in order, and thoughts are
// blocks with the members that they may have.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`[{"type":"thinking","thinking":"t","signature":"s"},3,"a",{"type":"redacted_thinking","data":"d"}]`), "text", "a b a")
	f.Add([]byte(`[1,9223372036854775807,{"type":"thinking","thinking":"x","signature":"y"}]`), "hello", "")
	f.Add([]byte(`[1,"a",9223372036854775807,"a",{"type":"thinking","thinking":"x","signature":"y","cache_control":{}}]`), "hello", "a")
	f.Add([]byte(`[1,"a",1,"b",1,{"type":"thinking","thinking":"\ud800","signature":"y"}]`), "ÄÄ", "b a a")
	f.Fuzz(func(t *testing.T, state []byte, text, ids string) {
		calls := strings.Fields(ids)
		o := Open("d", "m", vendors.SealOpaque("d", "m", state))
		pieces, whole := o.Arrange(text, calls)
		var said strings.Builder
		var called []int
		for _, p := range pieces {
			switch {
			case p.Thought != nil:
				if block := p.Thought.AppendJSON(nil); !json.Valid(block) || !p.Thought.binding() {
					t.Fatalf("%s", block)
				}
				continue
			case p.Call >= 0:
				called = append(called, p.Call)
				continue
			case whole && p.Rest != (p.Text == text) && p.Text != "":
				t.Fatalf("%+v", p)
			case utf8.ValidString(text) && !utf8.ValidString(p.Text):
				t.Fatalf("%q cut to %q", text, p.Text)
			}
			said.WriteString(p.Text)
		}
		slices.Sort(called)
		if said.String() != text || len(called) != len(calls) || len(slices.Compact(called)) != len(calls) {
			t.Fatalf("%q %v", said.String(), called)
		}
		again := Open("d", "m", o.Seal("d", "m"))
		if o.Thinks() != again.Thinks() || o.Seal("d", "m") != again.Seal("d", "m") {
			t.Fatalf("%+v and %+v", o, again)
		}
	})
}
