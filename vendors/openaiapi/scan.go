package openaiapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep values may nest; encoding/json stops at the same depth.
const maxDepth = 10000

// maxBuilt is how many elements and further members an answer may have. Each takes a hundred times the room of its text,
// so that a small answer of nothing else would fill the memory. Answers have some dozens; values that are kept as they
// stand (log probabilities, schemas) count once.
const maxBuilt = 1 << 16

// decoder reads one JSON text from front to back, once. It checks the syntax as it goes. The first error sticks; every
// method is then a no-op, so that callers test it once at the end.
type decoder struct {
	data []byte
	pos  int
	// lenient: a member of a wrong type goes to Extra instead of failing.
	lenient bool
	// built counts the elements and further members of an answer.
	built int
	err   error
	open  []level
	buf   [6]level
}

// level is an object or an array that the decoder stands in.
type level struct {
	name  []byte // of the current member, between its quotes
	index int    // of the current element; -1 in an object
	begun bool
}

func newDecoder(data []byte, lenient bool) *decoder {
	// Texts end in protocol buffers, which refuse broken UTF-8.
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	d := &decoder{data: data, lenient: lenient}
	d.open = d.buf[:0]
	return d
}

// end checks that nothing follows the value.
func (d *decoder) end() error {
	if d.space(); d.err == nil && d.pos < len(d.data) {
		d.syntax("unexpected text after the value")
	}
	return d.err
}

func (d *decoder) syntax(what string) {
	if d.err == nil {
		d.err = &SyntaxError{Offset: d.pos, What: what}
	}
	d.pos = len(d.data)
}

// build makes room for one more element or further member, and reports whether there is any. A request is its caller's own
// affair: its size is bounded by the door.
func (d *decoder) build() bool {
	if d.err != nil || !d.lenient {
		return d.err == nil
	}
	if d.built++; d.built > maxBuilt {
		d.err = &TypeError{Path: d.path(), Want: fmt.Sprintf("no more than %d values", maxBuilt)}
		d.pos = len(d.data)
		return false
	}
	return true
}

// path spells the current position: messages[2].content.
func (d *decoder) path() string {
	var b strings.Builder
	for _, l := range d.open {
		switch {
		case l.index >= 0:
			fmt.Fprintf(&b, "[%d]", l.index)
		case l.name != nil:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(unquote(l.name))
		}
	}
	return b.String()
}

func (d *decoder) space() {
	for d.pos < len(d.data) {
		switch d.data[d.pos] {
		case ' ', '\n', '\r', '\t':
			d.pos++
		default:
			return
		}
	}
}

// kind is the first byte of the next value ('{', '[', '"', 't', 'f', 'n', a digit or '-'), 0 at the end.
func (d *decoder) kind() byte {
	d.space()
	if d.pos >= len(d.data) {
		return 0
	}
	return d.data[d.pos]
}

func isNumber(kind byte) bool { return kind == '-' || kind >= '0' && kind <= '9' }

// enter steps into an object ('{') or an array ('['); the caller has seen that the next byte is one.
func (d *decoder) enter() {
	if len(d.open) >= maxDepth {
		d.syntax("nested too deeply")
		return
	}
	index := -1
	if d.data[d.pos] == '[' {
		index = -2 // before the first element
	}
	d.pos++
	d.open = append(d.open, level{index: index})
}

// member steps to the next member of the object and reports whether there is one. Its name is name().
func (d *decoder) member() bool {
	if d.err != nil {
		return false
	}
	top := &d.open[len(d.open)-1]
	c := d.kind()
	if c == '}' {
		d.pos++
		d.open = d.open[:len(d.open)-1]
		return false
	}
	if top.begun {
		if c != ',' {
			d.syntax("expected ',' or '}' after a member")
			return false
		}
		d.pos++
		c = d.kind()
	}
	top.begun = true
	if c != '"' {
		d.syntax("expected a member's name")
		return false
	}
	top.name = d.quoted()
	if d.kind() != ':' {
		d.syntax("expected ':' after a member's name")
		return false
	}
	d.pos++
	d.space() // so that pos is where the value begins
	return d.err == nil
}

// name is the current member's name, without allocation when it is used in a switch or a comparison.
func (d *decoder) name() []byte {
	name := d.open[len(d.open)-1].name
	if bytes.IndexByte(name, '\\') >= 0 {
		return []byte(unquote(name))
	}
	return name
}

// element steps to the next element of the array and reports whether there is one.
func (d *decoder) element() bool {
	if d.err != nil {
		return false
	}
	top := &d.open[len(d.open)-1]
	c := d.kind()
	if c == ']' {
		d.pos++
		d.open = d.open[:len(d.open)-1]
		return false
	}
	if top.begun {
		if c != ',' {
			d.syntax("expected ',' or ']' after an element")
			return false
		}
		d.pos++
	} else {
		top.index = -1
	}
	top.begun = true
	top.index++
	d.space()
	return true
}

// quoted reads a string and returns what stands between its quotes, escapes and all.
func (d *decoder) quoted() []byte {
	start := d.pos + 1
	for i := start; i < len(d.data); i++ {
		switch c := d.data[i]; {
		case c == '"':
			d.pos = i + 1
			return d.data[start:i]
		case c < ' ':
			d.pos = i
			d.syntax("control character in a string")
			return nil
		case c == '\\':
			i++
			if i < len(d.data) && d.data[i] == 'u' {
				if _, ok := hex4(d.data[i+1:]); !ok {
					d.pos = i
					d.syntax("broken escape in a string")
					return nil
				}
				i += 4
			} else if i >= len(d.data) || strings.IndexByte(`"\/bfnrt`, d.data[i]) < 0 {
				d.pos = min(i, len(d.data))
				d.syntax("broken escape in a string")
				return nil
			}
		}
	}
	d.pos = len(d.data)
	d.syntax("string without an end")
	return nil
}

// raw reads any value and returns its bytes.
func (d *decoder) raw() json.RawMessage {
	d.space()
	start := d.pos
	d.skip()
	if d.err != nil {
		return nil
	}
	return d.data[start:d.pos:d.pos]
}

func (d *decoder) skip() {
	switch c := d.kind(); {
	case d.err != nil:
	case c == '{':
		d.enter()
		for d.member() {
			d.skip()
		}
	case c == '[':
		d.enter()
		for d.element() {
			d.skip()
		}
	case c == '"':
		d.quoted()
	case c == 't':
		d.literal("true")
	case c == 'f':
		d.literal("false")
	case c == 'n':
		d.literal("null")
	case isNumber(c):
		d.number()
	case c == 0 && d.pos >= len(d.data):
		d.syntax("unexpected end")
	default:
		d.syntax("expected a value")
	}
}

func (d *decoder) literal(text string) {
	if !bytes.HasPrefix(d.data[d.pos:], []byte(text)) {
		d.syntax("expected a value")
		return
	}
	d.pos += len(text)
}

// number reads a number and returns its text.
func (d *decoder) number() []byte {
	start := d.pos
	if d.data[d.pos] == '-' {
		d.pos++
	}
	leadingZero := d.pos < len(d.data) && d.data[d.pos] == '0'
	digits := d.digits()
	if digits == 0 || leadingZero && digits > 1 {
		d.syntax("broken number")
		return nil
	}
	if d.pos < len(d.data) && d.data[d.pos] == '.' {
		d.pos++
		if d.digits() == 0 {
			d.syntax("broken number")
			return nil
		}
	}
	if d.pos < len(d.data) && (d.data[d.pos] == 'e' || d.data[d.pos] == 'E') {
		d.pos++
		if d.pos < len(d.data) && (d.data[d.pos] == '+' || d.data[d.pos] == '-') {
			d.pos++
		}
		if d.digits() == 0 {
			d.syntax("broken number")
			return nil
		}
	}
	return d.data[start:d.pos]
}

func (d *decoder) digits() int {
	start := d.pos
	for d.pos < len(d.data) && d.data[d.pos] >= '0' && d.data[d.pos] <= '9' {
		d.pos++
	}
	return d.pos - start
}
