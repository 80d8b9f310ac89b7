package gemini

import (
	"bytes"
	"io"
)

// bareJSON makes events of JSON that stands in a stream without "data:" before it: an error, on one line or printed over
// several, or the whole answer where a proxy lost the switch for events. A reader of events would skip such lines.
type bareJSON struct {
	src io.Reader
	// fresh: the next byte begins a line. bare: the last line was bare JSON.
	fresh, bare bool
	ready       []byte // rewritten, and not read yet
	err         error  // that came with it
	buf         []byte
}

// Read reads src. Lines that begin as only JSON does become data; all others pass as they are.
func (b *bareJSON) Read(p []byte) (int, error) {
	if len(b.ready) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		n, err := b.src.Read(p)
		rewritten, ready := b.rewrite(p[:n])
		if !rewritten {
			return n, err
		}
		b.ready, b.err = ready, err
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	if len(b.ready) == 0 {
		return n, b.err
	}
	return n, nil
}

// rewrite adds what is missing; false means that nothing is.
func (b *bareJSON) rewrite(data []byte) (bool, []byte) {
	out := b.buf[:0]
	kept := 0
	for i := 0; i < len(data); {
		if b.fresh {
			add := b.begin(data[i])
			if add != "" {
				out = append(append(out, data[kept:i]...), add...)
				kept = i
			}
		}
		b.fresh = data[i] == '\n' || data[i] == '\r'
		if b.fresh {
			i++
			continue
		}
		next := bytes.IndexAny(data[i:], "\r\n")
		if next < 0 {
			break
		}
		i += next
	}
	if len(out) == 0 {
		return false, nil
	}
	out = append(out, data[kept:]...)
	b.buf = out
	return true, out
}

// begin says what has to stand before a line that begins with c.
func (b *bareJSON) begin(c byte) string {
	switch c {
	case '\n', '\r':
		return "" // a blank line, or the rest of a line's end
	case '{', '}', '[', ']', '"', ',', ' ', '\t':
		b.bare = true
		return "data:"
	}
	if b.bare { // an event begins, and the JSON before it was one of its own
		b.bare = false
		return "\n"
	}
	return ""
}
