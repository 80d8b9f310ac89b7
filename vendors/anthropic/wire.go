package anthropic

import (
	"encoding/base64"
	"strconv"

	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// block is a content block of a request.
type block struct {
	kind string
	// raw is a whole block as the vendor wrote it; nothing else is set then.
	raw []byte

	text    string  // of a text block
	source  *source // of an image or a document
	title   string  // of a document
	id      string  // of a call, or of the call that a result answers
	name    string  // of a call
	input   []byte  // of a call
	content []*block
	isError []byte
	cache   claude.Lifetime
}

// source is where an image or a document comes from.
type source struct {
	kind, mediaType string
	data            []byte // written in base64
	value           string // text, URL or file id
}

// turn is one message of the conversation.
type turn struct {
	role   string
	blocks []*block
}

// writer writes JSON piece by piece, so that large images are written once.
type writer struct{ buf []byte }

// next separates what follows from what came before.
func (w *writer) next() {
	switch w.buf[len(w.buf)-1] {
	case '{', '[', ':':
	default:
		w.buf = append(w.buf, ',')
	}
}

func (w *writer) name(name string) {
	w.next()
	w.buf = append(openaiapi.AppendString(w.buf, name), ':')
}

// open begins an object or an array as a member, or as an element if name is empty.
func (w *writer) open(name string, bracket byte) {
	if name == "" {
		w.next()
	} else {
		w.name(name)
	}
	w.buf = append(w.buf, bracket)
}

func (w *writer) close(bracket byte) { w.buf = append(w.buf, bracket) }

func (w *writer) str(name, value string) {
	w.name(name)
	w.buf = openaiapi.AppendString(w.buf, value)
}

// opt writes a text that is not empty.
func (w *writer) opt(name, value string) {
	if value != "" {
		w.str(name, value)
	}
}

// raw writes JSON as it is; nil is not written.
func (w *writer) raw(name string, value []byte) {
	if value != nil {
		w.name(name)
		w.buf = append(w.buf, value...)
	}
}

func (w *writer) integer(name string, value int64) {
	w.name(name)
	w.buf = strconv.AppendInt(w.buf, value, 10)
}

func (w *writer) blocks(name string, blocks []*block) {
	w.open(name, '[')
	for _, b := range blocks {
		w.block(b)
	}
	w.close(']')
}

func (w *writer) block(b *block) {
	if b.raw != nil {
		w.next()
		w.buf = append(w.buf, b.raw...)
		return
	}
	w.open("", '{')
	w.str("type", b.kind)
	switch b.kind {
	case "text":
		w.str("text", b.text)
	case "image", "document":
		w.source(b.source)
		w.opt("title", b.title)
	case "tool_use":
		w.str("id", b.id)
		w.str("name", b.name)
		w.raw("input", b.input)
	case "tool_result":
		w.str("tool_use_id", b.id)
		if len(b.content) > 0 {
			w.blocks("content", b.content)
		}
		w.raw("is_error", b.isError)
	}
	w.breakpoint(b.cache)
	w.close('}')
}

func (w *writer) source(s *source) {
	w.open("source", '{')
	w.str("type", s.kind)
	w.opt("media_type", s.mediaType)
	switch s.kind {
	case "base64":
		w.name("data")
		w.buf = append(w.buf, '"')
		w.buf = append(base64.StdEncoding.AppendEncode(w.buf, s.data), '"')
	case "text":
		w.str("data", s.value)
	case "url":
		w.str("url", s.value)
	case "file":
		w.str("file_id", s.value)
	}
	w.close('}')
}
