package openai

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/sse"
	"github.com/ai-process/ktms/vendors/transport"
)

const (
	// maxAnswer bounds a complete answer as sse.MaxEventBytes bounds an event: many choices, or sound in base64.
	maxAnswer = 64 << 20
	// drainBytes and drainTime bound the reading after [DONE]. The end of the body is all that should come, and reading
	// it lets the connection serve the next call; a server that keeps the stream open is not waited for.
	drainBytes = 4 << 10
	drainTime  = 250 * time.Millisecond
)

// Options configure a Vendor. The zero value is ready for use.
type Options = transport.Options

// Vendor speaks the dialect. It implements vendors.Vendor.
type Vendor struct {
	client    *transport.Client
	userAgent string
	// most is the longest answer and the longest event, in bytes.
	most int
}

var _ vendors.Vendor = (*Vendor)(nil)

// New returns a Vendor.
func New(o Options) *Vendor {
	v := &Vendor{client: o.Client(), userAgent: o.UserAgent(), most: maxAnswer}
	if o.MaxAnswer > 0 {
		v.most = o.MaxAnswer
	}
	return v
}

// CloseIdleConnections closes the connections that no call uses.
func (v *Vendor) CloseIdleConnections() { v.client.CloseIdleConnections() }

// Generate implements vendors.Vendor.
func (v *Vendor) Generate(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) (*vendors.Answer, error) {
	call, failed := v.begin(ctx, t, req, false)
	if failed != nil {
		return nil, failed
	}
	defer call.close()
	body, failed := transport.ReadAll(ctx, t.Vendor, call.res, int64(v.most))
	if failed != nil {
		return nil, failed
	}
	response, failed := decode(t, body)
	if failed != nil {
		return nil, transport.Within(failed, call.res)
	}
	head, failed := call.head(response.GetSystemFingerprint())
	if failed != nil {
		return nil, failed
	}
	return &vendors.Answer{Head: head, Response: response}, nil
}

// Stream implements vendors.Vendor.
func (v *Vendor) Stream(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) iter.Seq2[vendors.Event, error] {
	return func(yield func(vendors.Event, error) bool) {
		call, failed := v.begin(ctx, t, req, true)
		if failed != nil {
			yield(vendors.Event{}, failed)
			return
		}
		defer call.close()
		if failed := call.stream(ctx, yield); failed != nil {
			yield(vendors.Event{}, transport.Within(failed, call.res))
		}
	}
}

// call is a vendor call that was accepted.
type call struct {
	target  vendors.Target
	encoded *encoded
	strict  bool
	choices int // that were asked for
	most    int // bytes of the answer or of an event
	res     *http.Response
}

// begin makes a call and returns once the vendor accepted it.
func (v *Vendor) begin(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest, stream bool) (*call, *vendors.Error) {
	encoded, failed := encode(t, req, stream)
	if failed != nil {
		return nil, failed
	}
	d := dialectOf(t.Vendor)
	address, failed := endpoint(t, d, chatPath)
	if failed != nil {
		return nil, failed
	}
	// A bytes.Reader gives the request a GetBody, which HTTP/2 needs to send it again after a GOAWAY that came first.
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(encoded.body))
	if err != nil {
		return nil, transport.Failure(ctx, t.Vendor, err)
	}
	if failed := v.headers(hr.Header, t, d, stream); failed != nil {
		return nil, failed
	}
	if encoded.beta != "" {
		hr.Header.Set(betaHeader, encoded.beta)
	}
	res, failed := v.client.Call(hr, t.Vendor, func(res *http.Response) *vendors.Error { return statusError(t, res) }) //nolint:bodyclose // call.close does
	if failed != nil {
		return nil, failed
	}
	return &call{target: t, encoded: encoded, strict: req.GetStrictParams(), choices: int(max(1, req.GetN())), most: v.most, res: res}, nil
}

// headers sets all that goes out: nothing of the caller's request does.
func (v *Vendor) headers(h http.Header, t vendors.Target, d *dialect, stream bool) *vendors.Error {
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json")
	if stream {
		h.Set("Accept", "text/event-stream")
	}
	h.Set("User-Agent", v.userAgent)
	if t.Key.IsZero() {
		return nil
	}
	key, failed := transport.HeaderKey(t.Vendor, t.Key)
	if failed != nil {
		return failed
	}
	if d.azure {
		h.Set("Api-Key", key)
	} else {
		h.Set("Authorization", "Bearer "+key)
	}
	return nil
}

func (c *call) close() { _ = c.res.Body.Close() }

// head is what there is to say before the answer, once its fingerprint shows who answers. Ollama ignores some fields
// without a word; if it is Ollama, they were dropped.
func (c *call) head(fingerprint string) (vendors.Head, *vendors.Error) {
	head := vendors.Head{Dropped: c.encoded.dropped, RequestID: transport.RequestID(c.res.Header), Enforced: c.encoded.enforced}
	if fingerprint == ollamaFingerprint && len(c.encoded.unheard) > 0 {
		if c.strict {
			return head, refusedParam(c.target.Vendor, c.encoded.unheard[0])
		}
		head.Dropped = append(slices.Clip(head.Dropped), c.encoded.unheard...)
	}
	return head, nil
}

// stream reads the answer's events and yields them. It returns nil after a clean end and when the consumer has enough.
func (c *call) stream(ctx context.Context, yield func(vendors.Event, error) bool) *vendors.Error {
	headSent := len(c.encoded.unheard) == 0
	if headSent {
		head, _ := c.head("")
		if !yield(vendors.Event{Head: &head}, nil) {
			return nil
		}
	}
	s := newStream(c.target, c.choices)
	send := func(chunks []*ktmsv1.GenerateTextChunk, failed *vendors.Error) (bool, *vendors.Error) {
		if !headSent && (failed == nil || len(chunks) > 0) {
			headSent = true
			head, refused := c.head(s.fingerprint)
			if refused != nil {
				return false, refused
			}
			if !yield(vendors.Event{Head: &head}, nil) {
				return false, nil
			}
		}
		for _, chunk := range chunks {
			if !yield(vendors.Event{Chunk: chunk}, nil) {
				return false, nil
			}
		}
		return failed == nil, failed
	}

	// Some servers answer with JSON whatever was asked for: an error with status 200, or the whole answer at once. The
	// tiny buffer only looks ahead; longer reads go past it.
	body := bufio.NewReaderSize(c.res.Body, 16)
	if isJSON, err := startsObject(body); err != nil && err != io.EOF {
		return transport.Failure(ctx, c.target.Vendor, err)
	} else if isJSON {
		whole, err := io.ReadAll(io.LimitReader(body, int64(c.most)))
		if err != nil {
			return transport.Failure(ctx, c.target.Vendor, err)
		}
		_, failed := send(s.whole(whole))
		return failed
	}

	events := sse.NewReaderSize(body, c.most)
	for {
		event, err := events.Next()
		// What a missing blank line leaves of the last event may well be whole.
		if err != nil && (!errors.Is(err, io.ErrUnexpectedEOF) || len(event.Data) == 0) {
			cause := c.ended(ctx, err)
			_, failed := send(s.end(cause, cause != nil))
			return failed
		}
		data := bytes.TrimSpace(event.Data)
		if len(data) == 0 {
			continue
		}
		if string(data) == "[DONE]" {
			more, failed := send(s.end(nil, false))
			if more {
				c.drain(body)
			}
			return failed
		}
		chunks, failed := s.take(event.Name, data)
		if failed != nil {
			cut := err != nil // half an event is a cut, not garbage
			if cut {
				failed = c.ended(ctx, err)
			}
			var last []*ktmsv1.GenerateTextChunk
			last, failed = s.end(failed, cut)
			_, failed = send(append(chunks, last...), failed)
			return failed
		}
		if more, failed := send(chunks, nil); !more {
			return failed
		}
	}
}

// ended says why a stream has no more events; nil is a clean end.
func (c *call) ended(ctx context.Context, err error) *vendors.Error {
	switch {
	case err == io.EOF && ctx.Err() == nil:
		return nil
	case errors.Is(err, sse.ErrTooLong):
		e := unavailable(c.target, "sent an event that is too long")
		e.Err = err
		return e
	}
	return transport.Failure(ctx, c.target.Vendor, err)
}

// startsObject reports whether the first thing in r is a JSON object, and leaves it there.
func startsObject(r *bufio.Reader) (bool, error) {
	for {
		next, err := r.Peek(1)
		if err != nil {
			return false, err
		}
		switch next[0] {
		case ' ', '\t', '\r', '\n':
			_, _ = r.Discard(1)
		default:
			return next[0] == '{', nil
		}
	}
}

// drain reads what follows [DONE].
func (c *call) drain(r io.Reader) {
	giveUp := time.AfterFunc(drainTime, c.close)
	defer giveUp.Stop()
	_, _ = io.CopyN(io.Discard, r, drainBytes)
}
