package sse

import (
	"bytes"
	"net/http"
)

// Writer writes events to a client and flushes each, so that none waits in a buffer. It is not safe for concurrent use.
type Writer struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
	buf  []byte
}

// NewWriter returns a Writer. The header is the caller's to set (see SetHeader) before the first event.
func NewWriter(w http.ResponseWriter) *Writer {
	return &Writer{w: w, ctrl: http.NewResponseController(w)}
}

// SetHeader sets what an event stream needs: its type, and that neither caches nor proxies hold it back.
func SetHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx
}

// Event writes one event; name may be empty. Data may have several lines.
func (w *Writer) Event(name string, data []byte) error {
	w.buf = AppendEvent(w.buf[:0], name, data)
	return w.Write(w.buf)
}

// Data writes one event without a name.
func (w *Writer) Data(data []byte) error { return w.Event("", data) }

// Comment writes a line that every reader skips. It keeps a connection alive through proxies that cut silent ones.
func (w *Writer) Comment(text string) error {
	w.buf = append(append(append(w.buf[:0], ": "...), text...), "\n\n"...)
	return w.Write(w.buf)
}

// Write writes events that are encoded already, such as those of openaiapi.ChatChunk.AppendEvent.
func (w *Writer) Write(events []byte) error {
	if _, err := w.w.Write(events); err != nil {
		return err
	}
	return w.ctrl.Flush()
}

// AppendEvent appends one event; name may be empty. It has no line ends but \n: a CR in data would end a line, so it
// becomes one.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	for {
		line, rest, more := cutLine(data)
		dst = append(append(append(dst, "data: "...), line...), '\n')
		if !more {
			return append(dst, '\n')
		}
		data = rest
	}
}

func cutLine(data []byte) (line, rest []byte, more bool) {
	i := bytes.IndexAny(data, "\r\n")
	if i < 0 {
		return data, nil, false
	}
	if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
		return data[:i], data[i+2:], true
	}
	return data[:i], data[i+1:], true
}
