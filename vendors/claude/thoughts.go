package claude

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// Thought is one block of thinking that the vendor wants back unchanged: what the model thought with its signature, or,
// in Redacted alone, what only the vendor can read.
type Thought struct{ Thinking, Signature, Redacted string }

// binding reports whether the vendor wants it back.
func (t Thought) binding() bool { return t.Redacted != "" || t.Signature != "" }

// AppendJSON writes the block in the words of the Messages API.
func (t Thought) AppendJSON(buf []byte) []byte {
	if t.Redacted != "" {
		buf = append(buf, `{"type":"redacted_thinking","data":`...)
		return append(openaiapi.AppendString(buf, t.Redacted), '}')
	}
	buf = append(buf, `{"type":"thinking","thinking":`...)
	buf = append(openaiapi.AppendString(buf, t.Thinking), `,"signature":`...)
	return append(openaiapi.AppendString(buf, t.Signature), '}')
}

// Order is the order in which an answer was written: its thoughts, and between them the length of a text or the id of a
// call. The vendor refuses a turn whose thinking stands elsewhere than it did. The zero Order is that of no answer yet.
type Order struct{ steps []step }

// step is one of the three.
type step struct {
	thought *Thought
	text    int
	call    string
}

// maxText bounds a text in a state that a caller may have made up, so that sums stay sums.
const maxText = 1 << 30

// Think adds a thought. One without a signature need not come back and has no place.
func (o *Order) Think(t Thought) {
	if t.binding() {
		o.steps = append(o.steps, step{thought: &t})
	}
}

// Text adds bytes of text, as they come: neighbours are one.
func (o *Order) Text(n int) {
	if last := len(o.steps) - 1; last >= 0 && o.steps[last].text > 0 {
		o.steps[last].text = min(o.steps[last].text+min(n, maxText), maxText)
	} else if n > 0 {
		o.steps = append(o.steps, step{text: min(n, maxText)})
	}
}

// Call adds a call under the id that the caller knows.
func (o *Order) Call(id string) {
	if id != "" {
		o.steps = append(o.steps, step{call: id})
	}
}

// Thinks reports whether there are thoughts.
func (o *Order) Thinks() bool {
	for _, s := range o.steps {
		if s.thought != nil {
			return true
		}
	}
	return false
}

// Seal packs the order into Choice.opaque. What follows the last thought needs no place; without thoughts there is no
// state.
func (o *Order) Seal(dialect, model string) string {
	steps := o.steps
	for len(steps) > 0 && steps[len(steps)-1].thought == nil {
		steps = steps[:len(steps)-1]
	}
	if len(steps) == 0 {
		return ""
	}
	state := []byte{'['}
	for i, s := range steps {
		if i > 0 {
			state = append(state, ',')
		}
		switch {
		case s.thought != nil:
			state = s.thought.AppendJSON(state)
		case s.text > 0:
			state = strconv.AppendInt(state, int64(s.text), 10)
		default:
			state = openaiapi.AppendString(state, s.call)
		}
	}
	return vendors.SealOpaque(dialect, model, append(state, ']'))
}

// Open unpacks Message.opaque. It returns an Order without thoughts for what is another model's or damaged. Callers can
// make up a state, so that nothing comes out of it but the known members of a thought.
func Open(dialect, model, opaque string) Order {
	state := vendors.OpenOpaque(dialect, model, opaque)
	var elements []json.RawMessage
	if state == nil || json.Unmarshal(state, &elements) != nil {
		return Order{}
	}
	var o Order
	for _, element := range elements {
		if !o.read(bytes.TrimSpace(element)) {
			return Order{}
		}
	}
	return o
}

// read adds an element of a state; false if there can be none such.
func (o *Order) read(element []byte) bool {
	switch element[0] {
	case '{':
		t, ok := readThought(element)
		o.Think(t)
		return ok
	case '"':
		var id string
		err := json.Unmarshal(element, &id)
		o.Call(id)
		return err == nil && id != ""
	}
	var text int
	if json.Unmarshal(element, &text) != nil || text <= 0 {
		return false
	}
	o.Text(text)
	return true
}

func readThought(object []byte) (Thought, bool) {
	var wire struct {
		Type      string  `json:"type"`
		Thinking  *string `json:"thinking"`
		Signature string  `json:"signature"`
		Data      string  `json:"data"`
	}
	if json.Unmarshal(object, &wire) != nil {
		return Thought{}, false
	}
	switch {
	case wire.Type == "thinking" && wire.Thinking != nil && wire.Signature != "":
		return Thought{Thinking: *wire.Thinking, Signature: wire.Signature}, true
	case wire.Type == "redacted_thinking" && wire.Data != "":
		return Thought{Redacted: wire.Data}, true
	}
	return Thought{}, false
}

// Piece is a part of a turn that goes back: a thought, a text, a call, or the rest of the text.
type Piece struct {
	// Thought is nil for the others.
	Thought *Thought
	// Call is the call's place among the calls, or -1.
	Call int
	// Text may be blank. Rest marks the text that no place was told of, which may be empty.
	Text string
	Rest bool
}

// Arrange puts a turn in the order in which the vendor wrote it. text is all of its text, and calls are the ids of its
// calls. What the order does not tell of follows: the rest of the text, then the other calls. A state of another text or
// of other calls does no harm: what it tells of them is passed over. whole reports that the rest is all of the text, so
// that a dialect can write the parts of the message there.
func (o *Order) Arrange(text string, calls []string) (pieces []Piece, whole bool) {
	places := make(map[string][]int, len(calls)) // of the calls that did not have their turn
	for i, id := range calls {
		places[id] = append(places[id], i)
	}
	taken := make([]bool, len(calls))
	rest := text
	whole = true
	for _, s := range o.steps {
		switch {
		case s.thought != nil:
			pieces = append(pieces, Piece{Thought: s.thought, Call: -1})
		case s.text > 0:
			if s.text > len(rest) || s.text < len(rest) && !utf8.RuneStart(rest[s.text]) {
				continue // the text is another one
			}
			pieces = append(pieces, Piece{Text: rest[:s.text], Call: -1})
			rest, whole = rest[s.text:], false
		default:
			if at := places[s.call]; len(at) > 0 {
				pieces = append(pieces, Piece{Call: at[0]})
				taken[at[0]], places[s.call] = true, at[1:]
			}
		}
	}
	pieces = append(pieces, Piece{Text: rest, Rest: true, Call: -1})
	for i := range calls {
		if !taken[i] {
			pieces = append(pieces, Piece{Call: i})
		}
	}
	return pieces, whole
}
