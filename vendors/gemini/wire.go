package gemini

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/ai-process/ktms/vendors/openaiapi"
)

// The wire is written by hand rather than by encoding/json, which would rewrite the bytes of arguments and schemas, and
// copy images more than once.

// Roles of the wire; there are no others.
const (
	userRole  = "user"
	modelRole = "model"
)

// content is one turn.
type content struct {
	role  string // empty in a system instruction
	parts []part
}

// part is one part of a turn: exactly one of its kinds is set.
type part struct {
	text     string
	data     []byte // inline, of mime
	fileURI  string // of mime, which may be empty
	mime     string
	call     *functionCall
	response *functionResponse
	raw      json.RawMessage // a part of an earlier answer, as it was
	// signature is the thoughtSignature of an earlier answer's part.
	signature string
}

type functionCall struct {
	id, name string
	args     json.RawMessage
}

type functionResponse struct {
	id, name string
	response json.RawMessage
}

// writer appends JSON. Members are separated by looking at what stands before.
type writer struct{ buf []byte }

func (w *writer) sep() {
	if n := len(w.buf); n > 0 && w.buf[n-1] != '{' && w.buf[n-1] != '[' && w.buf[n-1] != ':' {
		w.buf = append(w.buf, ',')
	}
}

// name begins a member.
func (w *writer) name(name string) {
	w.sep()
	w.buf = append(openaiapi.AppendString(w.buf, name), ':')
}

func (w *writer) text(name, value string) {
	w.name(name)
	w.buf = openaiapi.AppendString(w.buf, value)
}

// maybeText writes a member that is left out when it is empty.
func (w *writer) maybeText(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *writer) raw(name string, value []byte) {
	w.name(name)
	w.buf = append(w.buf, value...)
}

func (w *writer) number(name string, value float64) {
	w.name(name)
	w.buf = openaiapi.AppendNumber(w.buf, value)
}

func (w *writer) integer(name string, value int64) {
	w.name(name)
	w.buf = strconv.AppendInt(w.buf, value, 10)
}

func (w *writer) object(name string, fill func()) {
	w.name(name)
	w.group('{', '}', fill)
}

func (w *writer) array(name string, fill func()) {
	w.name(name)
	w.group('[', ']', fill)
}

// group writes an object or an array, as a member or as an element.
func (w *writer) group(open, end byte, fill func()) {
	w.sep()
	w.buf = append(w.buf, open)
	fill()
	w.buf = append(w.buf, end)
}

func (w *writer) texts(name string, values []string) {
	w.array(name, func() {
		for _, v := range values {
			w.sep()
			w.buf = openaiapi.AppendString(w.buf, v)
		}
	})
}

func (w *writer) content(c *content) {
	w.group('{', '}', func() {
		w.maybeText("role", c.role)
		w.array("parts", func() {
			for i := range c.parts {
				w.part(&c.parts[i])
			}
		})
	})
}

func (w *writer) part(p *part) {
	if p.raw != nil {
		w.sep()
		w.buf = append(w.buf, p.raw...)
		return
	}
	w.group('{', '}', func() {
		switch {
		case p.call != nil:
			w.object("functionCall", func() {
				w.maybeText("id", p.call.id)
				w.text("name", p.call.name)
				w.raw("args", p.call.args)
			})
		case p.response != nil:
			w.object("functionResponse", func() {
				w.maybeText("id", p.response.id)
				w.text("name", p.response.name)
				w.raw("response", p.response.response)
			})
		case p.fileURI != "":
			w.object("fileData", func() {
				w.maybeText("mimeType", p.mime)
				w.text("fileUri", p.fileURI)
			})
		case p.data != nil:
			w.object("inlineData", func() {
				w.text("mimeType", p.mime)
				w.name("data")
				w.buf = append(w.buf, '"')
				w.buf = append(base64.StdEncoding.AppendEncode(w.buf, p.data), '"')
			})
		default:
			w.text("text", p.text)
		}
		w.maybeText("thoughtSignature", p.signature)
	})
}
