package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

type got struct{ name, data, id string }

// readAll returns every event, the incomplete one included, and the error that ended the stream.
func readAll(r *Reader) ([]got, error) {
	var all []got
	for {
		ev, err := r.Next()
		if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			all = append(all, got{ev.Name, string(ev.Data), ev.ID})
		}
		if err != nil {
			return all, err
		}
	}
}

func TestReader(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []got
		err        error
	}{
		{"plain", "data: a\n\ndata: b\n\n", []got{{data: "a"}, {data: "b"}}, io.EOF},
		{"crlf", "data: a\r\n\r\ndata: b\r\n\r\n", []got{{data: "a"}, {data: "b"}}, io.EOF},
		{"cr", "data: a\r\rdata: b\r\r", []got{{data: "a"}, {data: "b"}}, io.EOF},
		{"mixed ends", "data: a\r\n\ndata: b\n\r\ndata: c\r\n\r", []got{{data: "a"}, {data: "b"}, {data: "c"}}, io.EOF},
		{"several lines", "data: a\ndata:\ndata:  b\n\n", []got{{data: "a\n\n b"}}, io.EOF},
		{"named", "event: x\ndata: 1\nid: 7\n\nevent: x\ndata: 2\n\ndata: 3\nid\n\n", []got{{"x", "1", "7"}, {"x", "2", "7"}, {"", "3", ""}}, io.EOF},
		{"id with NUL", "id: a\x00b\ndata: 1\n\n", []got{{data: "1"}}, io.EOF},
		{"byte order mark", "\uFEFFdata: a\n\n\uFEFFdata: b\n\ndata: c\n\n", []got{{data: "a"}, {data: "c"}}, io.EOF},
		{"byte order mark before a blank line", "\uFEFF\ndata: a\n\n", []got{{data: "a"}}, io.EOF},
		{"comments and blanks", ": hello\n\n\n\n:\n\ndata: a\n: within\ndata: b\n\n: bye\n", []got{{data: "a\nb"}}, io.EOF},
		{"no data", "event: x\n\nid: 1\n\nretry: 5\n\ndata: a\n\n", []got{{data: "a", id: "1"}}, io.EOF},
		{"empty data", "data\n\ndata:\n\n", []got{{}, {}}, io.EOF},
		{"no space", "data:a\n\ndata:  a\n\ndata:a:b\n\n", []got{{data: "a"}, {data: " a"}, {data: "a:b"}}, io.EOF},
		{"unknown fields", "dat: a\nDATA: b\n data: c\ndata: d\n\n", []got{{data: "d"}}, io.EOF},
		{"nothing", "", nil, io.EOF},
		{"only comments", ": a\n: b", nil, io.EOF},
		{"cut after a line", "data: a\n\ndata: b\n", []got{{data: "a"}, {data: "b"}}, io.ErrUnexpectedEOF},
		{"cut within a line", "data: a\n\ndata: {\"b", []got{{data: "a"}, {data: "{\"b"}}, io.ErrUnexpectedEOF},
		{"cut between two lines of data", "data: a\ndata: b", []got{{data: "a\nb"}}, io.ErrUnexpectedEOF},
		{"cut after the name", "event: x\n", []got{{name: "x"}}, io.ErrUnexpectedEOF},
		{"cut within a field name", "da", []got{{}}, io.ErrUnexpectedEOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			for how, src := range map[string]io.Reader{
				"whole":           strings.NewReader(c.text),
				"byte by byte":    iotest.OneByteReader(strings.NewReader(c.text)),
				"error with data": iotest.DataErrReader(strings.NewReader(c.text)),
			} {
				all, err := readAll(NewReader(src))
				if err != c.err || fmt.Sprint(all) != fmt.Sprint(c.want) {
					t.Errorf("%s: got %q, %v; want %q, %v", how, all, err, c.want, c.err)
				}
			}
		})
	}
}

func TestReaderKeepsSayingEOF(t *testing.T) {
	r := NewReader(strings.NewReader("data: a"))
	if _, err := r.Next(); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	for range 2 {
		if ev, err := r.Next(); err != io.EOF || ev.Data != nil {
			t.Fatal(ev, err)
		}
	}
}

func TestReaderErrorOfTheSource(t *testing.T) {
	broken := errors.New("reset")
	all, err := readAll(NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken))))
	if err != broken || fmt.Sprint(all) != fmt.Sprint([]got{{data: "a"}}) {
		t.Errorf("%q %v", all, err)
	}
	if _, err := NewReader(emptyReader{}).Next(); err != io.ErrNoProgress {
		t.Error(err)
	}
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }

func TestReaderLongEvents(t *testing.T) {
	long := strings.Repeat("x", 5<<20)
	for _, text := range []string{"data: " + long + "\n\n", "data: " + long[:3<<20] + "\ndata: " + long[3<<20:] + "\n\n"} {
		r := NewReader(iotest.HalfReader(strings.NewReader(text)))
		ev, err := r.Next()
		if err != nil || len(ev.Data) < len(long) {
			t.Errorf("%d bytes, %v", len(ev.Data), err)
		}
	}
}

func TestReaderCap(t *testing.T) {
	const limit = 1000
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"below":             {"data: " + strings.Repeat("x", limit-20) + "\n\n", true},
		"above":             {"data: " + strings.Repeat("x", limit) + "\n\n", false},
		"many lines":        {strings.Repeat("data: x\n", limit), false},
		"other fields":      {"event: " + strings.Repeat("x", limit) + "\n\n", false},
		"comments go free":  {strings.Repeat(": "+strings.Repeat("x", limit/2)+"\n", 10) + "data: x\n\n", true},
		"an endless line":   {strings.Repeat("x", 10*limit), false},
		"events go free":    {strings.Repeat("data: x\n\n", limit), true},
		"blanks go free":    {strings.Repeat("\n", 10*limit) + "data: x\n\n", true},
		"an endless event":  {"data: x\n" + strings.Repeat(": x\n", limit), false},
		"a comment too far": {": " + strings.Repeat("x", 2*limit) + "\ndata: x\n\n", false},
	} {
		all, err := readAll(NewReaderSize(strings.NewReader(c.text), limit))
		if c.ok && (err != io.EOF || len(all) == 0) || !c.ok && !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: %d events, %v", name, len(all), err)
		}
	}
}

func TestReaderAllocatesNothingPerEvent(t *testing.T) {
	src := &endless{text: []byte("event: delta\ndata: {\"a\":1}\n\n: ping\n\n")}
	r := NewReader(src)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per event", n)
	}
}

type endless struct {
	text []byte
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func TestWriter(t *testing.T) {
	rec := httptest.NewRecorder()
	SetHeader(rec.Header())
	w := NewWriter(rec)
	for _, err := range []error{
		w.Data([]byte("a")), w.Comment("ping"), w.Event("x", []byte("b\nc\r\nd\re\n")), w.Data(nil), w.Write([]byte("data: [DONE]\n\n")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := "data: a\n\n: ping\n\nevent: x\ndata: b\ndata: c\ndata: d\ndata: e\ndata: \n\ndata: \n\ndata: [DONE]\n\n"
	if got := rec.Body.String(); got != want || !rec.Flushed {
		t.Errorf("wrote %q, flushed %v", got, rec.Flushed)
	}
	if rec.Header().Get("Content-Type") != "text/event-stream" {
		t.Error(rec.Header())
	}
}

// Every event has to leave at once: the client sees it while the handler still runs.
func TestWriterFlushes(t *testing.T) {
	seen := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		SetHeader(w.Header())
		if err := NewWriter(w).Data([]byte("a")); err != nil {
			t.Error(err)
		}
		<-seen
	}))
	defer s.Close()
	res, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	ev, err := NewReader(res.Body).Next()
	close(seen)
	if err != nil || string(ev.Data) != "a" {
		t.Error(ev, err)
	}
}

func TestWriterSaysThatNothingFlushes(t *testing.T) {
	if err := NewWriter(unflushable{}).Data([]byte("a")); !errors.Is(err, http.ErrNotSupported) {
		t.Error(err)
	}
}

type unflushable struct{}

func (unflushable) Header() http.Header         { return http.Header{} }
func (unflushable) Write(p []byte) (int, error) { return len(p), nil }
func (unflushable) WriteHeader(int)             {}

func BenchmarkReader(b *testing.B) {
	text := append([]byte("data: "), bytes.Repeat([]byte("x"), 220)...)
	r := NewReader(&endless{text: append(text, "\n\n"...)})
	b.SetBytes(int64(len(text) + 2))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
