package expose

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The padding: a space before a JSON value is part of no value, and a line with a colon is a comment of an event stream.
// No empty line follows, which would end an event that is not complete.
const (
	padJSON   = " "
	padStream = ": keep-alive\n"
)

// writeStall is how long the tunnel may take no bytes before its request is given up.
const writeStall = time.Minute

// chunk is how much of a stream is read at once.
const chunk = 32 << 10

// answer is what goes back through the tunnel.
type answer struct {
	w      http.ResponseWriter
	stream bool
	every  time.Duration
	// padded says that the head is sent: status 200 and a type that the padding fits.
	padded bool
}

// result is what a function returned.
type result[T any] struct {
	value T
	err   error
}

// awaitWith pads the answer while a function takes its time.
func awaitWith[T any](a *answer, after time.Duration, do func() (T, error)) (T, error) {
	done := make(chan result[T], 1)
	go func() {
		value, err := do()
		done <- result[T]{value, err}
	}()
	if a.padded {
		after = a.every
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	for {
		select {
		case r := <-done:
			return r.value, r.err
		case <-timer.C:
			a.pad()
			timer.Reset(a.every)
		}
	}
}

func (a *answer) pad() {
	padding, kind := padJSON, "application/json"
	if a.stream {
		padding, kind = padStream, "text/event-stream"
	}
	if !a.padded {
		a.padded = true
		a.w.Header().Set("Content-Type", kind)
		a.w.Header().Set("Cache-Control", "no-cache")
		a.w.WriteHeader(http.StatusOK)
	}
	a.write([]byte(padding))
}

// write sends at once. When the other side is gone the request's context ends, which ends everything here.
func (a *answer) write(p []byte) {
	control := http.NewResponseController(a.w)
	_ = control.SetWriteDeadline(time.Now().Add(writeStall))
	_, _ = a.w.Write(p)
	_ = control.Flush()
}

// fail ends the answer with an error. After padding the status is out, and the error stands in the body.
func (a *answer) fail(status int, message string) {
	switch {
	case !a.padded:
		refuse(a.w, status, message)
	case a.stream:
		a.event(errorBody(status, message))
	default:
		a.write(errorBody(status, message))
	}
}

func (a *answer) event(data []byte) {
	a.write([]byte("data: " + strings.ReplaceAll(string(data), "\n", " ") + "\n\n"))
}

// passWhole passes an answer on that does not stream.
func (a *answer) passWhole(resp *http.Response, body []byte) {
	switch {
	case !a.padded:
		if kind := resp.Header.Get("Content-Type"); kind != "" {
			a.w.Header().Set("Content-Type", kind)
		}
		if wait := resp.Header.Get("Retry-After"); wait != "" {
			a.w.Header().Set("Retry-After", wait)
		}
		a.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		a.w.WriteHeader(resp.StatusCode)
		a.write(body)
	case resp.StatusCode/100 != 2:
		a.fail(resp.StatusCode, engineMessage(body))
	case a.stream:
		a.event(body) // the stream was promised, so one event carries the answer
	default:
		a.write(body)
	}
}

// engineMessage is the sentence in an engine's error.
func engineMessage(body []byte) string {
	var wire struct {
		Error json.RawMessage `json:"error"`
	}
	var inner struct {
		Message string `json:"message"`
	}
	var plain string
	switch {
	case json.Unmarshal(body, &wire) != nil:
	case json.Unmarshal(wire.Error, &inner) == nil && inner.Message != "":
		return inner.Message
	case json.Unmarshal(wire.Error, &plain) == nil && plain != "":
		return plain
	}
	return "the engine refused the request"
}

// passStream passes events on as they come, and pads between lines while none come.
func (a *answer) passStream(resp *http.Response) {
	a.stream = true
	if !a.padded {
		a.padded = true
		a.w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		a.w.Header().Set("Cache-Control", "no-cache")
		a.w.WriteHeader(resp.StatusCode)
		_ = http.NewResponseController(a.w).Flush()
	}
	pieces := make(chan []byte)
	end := make(chan error, 1)
	stop := make(chan struct{})
	defer close(stop)
	go read(resp.Body, pieces, end, stop)
	timer := time.NewTimer(a.every)
	defer timer.Stop()
	lineEnded := true
	for {
		select {
		case p := <-pieces:
			a.write(p)
			lineEnded = p[len(p)-1] == '\n'
		case <-timer.C:
			// In the middle of a line a comment would become part of it.
			if lineEnded {
				a.pad()
			}
		case err := <-end:
			if !errors.Is(err, io.EOF) {
				// Without this the break would look like an end.
				panic(http.ErrAbortHandler)
			}
			return
		}
		timer.Reset(a.every)
	}
}

// read hands over what comes, until the end or stop.
func read(body io.Reader, pieces chan<- []byte, end chan<- error, stop <-chan struct{}) {
	for {
		p := make([]byte, chunk)
		n, err := body.Read(p)
		if n > 0 {
			select {
			case pieces <- p[:n]:
			case <-stop:
				return
			}
		}
		if err != nil {
			end <- err
			return
		}
	}
}
