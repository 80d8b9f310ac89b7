package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxEventBytes is the longest event that a Reader takes unless it is told otherwise. Tool arguments and images in
// base64 reach several megabytes; beyond this a stream is broken or hostile, and each one may claim this much memory.
const MaxEventBytes = 64 << 20

// firstBuffer holds a few events of usual size; the buffer doubles when an event needs more.
const firstBuffer = 4 << 10

// maxNames bounds how many event names a Reader remembers; dialects have about a dozen.
const maxNames = 32

// maxEmptyReads is how often a source may answer with nothing before it counts as broken, as in bufio.
const maxEmptyReads = 100

var bom = []byte("\uFEFF")

// ErrTooLong is wrapped by the error of an event that is longer than the reader takes.
var ErrTooLong = errors.New("event too long")

// Event is one event of a stream.
type Event struct {
	// Name is the event field, empty for most streams.
	Name string
	// Data is the data fields joined with newlines. It is valid until the next call of Next.
	Data []byte
	// ID is the last id field that the stream sent, on this event or before.
	ID string
}

// Reader reads events. It is not safe for concurrent use.
type Reader struct {
	src io.Reader
	max int
	err error // of src, once it has given one

	// buf[start:end] is what was read but not given away; the lines before scan are taken in, and no line ends between
	// scan and seen.
	buf                    []byte
	start, scan, seen, end int
	firstLine              bool
	skipLF                 bool // the last line ended with a CR, an LF behind it belongs to it

	// The event that is being read. One data line stays where it is in buf; several are joined.
	pending  bool // a line of it was seen
	name     string
	hasData  bool
	dataFrom int
	dataTo   int
	joined   []byte
	isJoined bool
	id       string
	names    map[string]string
}

// NewReader returns a Reader for events up to MaxEventBytes.
func NewReader(src io.Reader) *Reader { return NewReaderSize(src, MaxEventBytes) }

// NewReaderSize returns a Reader for events up to most bytes, field names included.
func NewReaderSize(src io.Reader, most int) *Reader {
	return &Reader{src: src, max: most, firstLine: true}
}

// Next returns the next event that has data. Comments, blank lines and unknown fields are skipped.
//
// After the last event it returns io.EOF. When the source ends within an event, Next returns what came of it together
// with io.ErrUnexpectedEOF: some servers forget the blank line after their last event, and only the caller can tell
// that from a cut. Errors of the source come back as they are, without an event.
func (r *Reader) Next() (Event, error) {
	r.reset()
	for {
		from, to, ok := r.line()
		if !ok {
			if r.err != nil {
				return r.finish()
			}
			if err := r.fill(); err != nil {
				return Event{}, err
			}
			continue
		}
		if from < to {
			r.field(from, to)
			continue
		}
		if r.hasData {
			return r.event(), nil
		}
		r.reset()
	}
}

// reset forgets the event; everything before scan is given away.
func (r *Reader) reset() {
	r.start = r.scan
	r.pending, r.hasData, r.isJoined, r.name = false, false, false, ""
}

func (r *Reader) event() Event {
	data := r.buf[r.dataFrom:r.dataTo]
	if r.isJoined {
		data = r.joined
	}
	return Event{Name: r.name, Data: data, ID: r.id}
}

// finish deals with what the source left behind.
func (r *Reader) finish() (Event, error) {
	if r.err != io.EOF {
		return Event{}, r.err
	}
	if r.scan < r.end {
		from := r.afterBOM(r.scan, r.end)
		r.scan, r.seen = r.end, r.end
		if from < r.end {
			r.field(from, r.end)
		}
	}
	if !r.pending {
		return Event{}, io.EOF
	}
	r.pending = false
	if r.hasData {
		return r.event(), io.ErrUnexpectedEOF
	}
	return Event{Name: r.name, ID: r.id}, io.ErrUnexpectedEOF
}

// line takes the next complete line and returns where it stands in buf, without its end; false when more has to be
// read first.
func (r *Reader) line() (from, to int, ok bool) {
	if r.skipLF && r.scan < r.end {
		r.skipLF = false
		if r.buf[r.scan] == '\n' {
			r.scan++
			r.seen = max(r.seen, r.scan)
		}
	}
	rest := r.buf[r.seen:r.end]
	n := bytes.IndexByte(rest, '\n')
	if n < 0 {
		n = len(rest)
	}
	// A lone CR ends a line too. It is taken at once, even where the LF of a CRLF may follow in the next read.
	if cr := bytes.IndexByte(rest[:n], '\r'); cr >= 0 {
		n = cr
		r.skipLF = true
	}
	to = r.seen + n
	r.seen = to
	if to == r.end {
		return 0, 0, false
	}
	from = r.afterBOM(r.scan, to)
	r.scan, r.seen = to+1, to+1
	return from, to, true
}

// afterBOM skips the byte order mark that the stream's first line may begin with.
func (r *Reader) afterBOM(from, to int) int {
	if r.firstLine && bytes.HasPrefix(r.buf[from:to], bom) {
		from += len(bom)
	}
	r.firstLine = false
	return from
}

// field takes in the line buf[from:to], which is not blank.
func (r *Reader) field(from, to int) {
	line := r.buf[from:to]
	name, value := line, line[len(line):]
	valueFrom := to
	if colon := bytes.IndexByte(line, ':'); colon >= 0 {
		valueFrom = from + colon + 1
		if valueFrom < to && r.buf[valueFrom] == ' ' {
			valueFrom++
		}
		name, value = line[:colon], r.buf[valueFrom:to]
	}
	if len(name) == 0 { // a comment
		if !r.pending {
			r.start = r.scan
		}
		return
	}
	r.pending = true
	switch string(name) {
	case "data":
		r.data(valueFrom, to)
	case "event":
		r.name = r.intern(value)
	case "id":
		if string(value) != r.id && bytes.IndexByte(value, 0) < 0 {
			r.id = string(value)
		}
	}
}

func (r *Reader) data(from, to int) {
	if !r.hasData {
		r.hasData, r.dataFrom, r.dataTo = true, from, to
		return
	}
	if !r.isJoined {
		r.isJoined = true
		r.joined = append(r.joined[:0], r.buf[r.dataFrom:r.dataTo]...)
	}
	r.joined = append(append(r.joined, '\n'), r.buf[from:to]...)
}

// intern spares the string of a name that was seen before.
func (r *Reader) intern(name []byte) string {
	if s, ok := r.names[string(name)]; ok {
		return s
	}
	s := string(name)
	if r.names == nil {
		r.names = map[string]string{}
	}
	if len(r.names) < maxNames {
		r.names[s] = s
	}
	return s
}

// fill reads more. Room is made by moving the event to the front, then by growing.
func (r *Reader) fill() error {
	held := 0
	if r.isJoined { // the lines taken in so far live on in joined
		r.start = r.scan
		r.dataFrom, r.dataTo = r.start, r.start
		held = len(r.joined)
	}
	if r.end-r.start+held > r.max {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLong, r.max)
	}
	if r.start > 0 && r.end == len(r.buf) {
		copy(r.buf, r.buf[r.start:r.end])
		r.scan -= r.start
		r.seen -= r.start
		r.end -= r.start
		r.dataFrom -= r.start
		r.dataTo -= r.start
		r.start = 0
	}
	if r.end == len(r.buf) {
		size := max(firstBuffer, 2*len(r.buf))
		if limit := r.max + 1; size > limit && limit > len(r.buf) {
			size = limit
		}
		grown := make([]byte, size)
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	for range maxEmptyReads {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if err != nil {
			r.err = err
			return nil
		}
		if n > 0 {
			return nil
		}
	}
	r.err = io.ErrNoProgress
	return nil
}
