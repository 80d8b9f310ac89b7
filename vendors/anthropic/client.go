package anthropic

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/sse"
	"github.com/ai-process/ktms/vendors/transport"
)

const (
	// apiVersion is the version of the Messages API that this dialect is written for.
	apiVersion = "2023-06-01"
	// maxAnswer bounds a complete answer as sse.MaxEventBytes bounds an event.
	maxAnswer = 64 << 20
	// drainBytes and drainTime bound the reading after the last event. The end of the body is all that should come, and
	// reading it lets the connection serve the next call; a server that keeps the stream open is not waited for.
	drainBytes = 4 << 10
	drainTime  = 250 * time.Millisecond
)

// Options configure a Vendor. The zero value is ready for use.
type Options = transport.Options

// Vendor speaks the dialect. It implements vendors.Vendor.
type Vendor struct {
	client    *transport.Client
	userAgent string
}

var _ vendors.Vendor = (*Vendor)(nil)

// New returns a Vendor.
func New(o Options) *Vendor { return &Vendor{client: o.Client(), userAgent: o.UserAgent()} }

// CloseIdleConnections closes the connections that no call uses.
func (v *Vendor) CloseIdleConnections() { v.client.CloseIdleConnections() }

// Generate implements vendors.Vendor.
func (v *Vendor) Generate(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) (*vendors.Answer, error) {
	call, failed := v.begin(ctx, t, req, false)
	if failed != nil {
		return nil, failed
	}
	defer call.close()
	body, failed := transport.ReadAll(ctx, t.Vendor, call.res, maxAnswer)
	if failed != nil {
		return nil, failed
	}
	response, failed := decode(t, call.encoded.names, body)
	if failed != nil {
		return nil, transport.Within(failed, call.res)
	}
	return &vendors.Answer{Head: call.head(), Response: response}, nil
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
	res     *http.Response
}

// begin makes a call and returns once the vendor accepted it.
func (v *Vendor) begin(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest, stream bool) (*call, *vendors.Error) {
	encoded, failed := encode(t, req, stream)
	if failed != nil {
		return nil, failed
	}
	address, failed := endpoint(t)
	if failed != nil {
		return nil, failed
	}
	// A bytes.Reader gives the request a GetBody, which HTTP/2 needs to send it again after a GOAWAY that came first.
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(encoded.body))
	if err != nil {
		return nil, transport.Failure(ctx, t.Vendor, err)
	}
	if failed := v.headers(hr.Header, t, encoded.beta, stream); failed != nil {
		return nil, failed
	}
	res, failed := v.client.Call(hr, t.Vendor, func(res *http.Response) *vendors.Error { return statusError(t, res) }) //nolint:bodyclose // call.close does
	if failed != nil {
		return nil, failed
	}
	return &call{target: t, encoded: encoded, res: res}, nil
}

// headers sets all that goes out: of the caller's request only the switches for beta features.
func (v *Vendor) headers(h http.Header, t vendors.Target, beta string, stream bool) *vendors.Error {
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json")
	if stream {
		h.Set("Accept", "text/event-stream")
	}
	h.Set("User-Agent", v.userAgent)
	h.Set("Anthropic-Version", apiVersion)
	if beta != "" {
		h.Set("Anthropic-Beta", beta)
	}
	if t.Key.IsZero() {
		return nil
	}
	key, failed := transport.HeaderKey(t.Vendor, t.Key)
	if failed != nil {
		return failed
	}
	h.Set("X-Api-Key", key)
	return nil
}

func (c *call) close() { _ = c.res.Body.Close() }

// head is what there is to say before the answer.
func (c *call) head() vendors.Head {
	return vendors.Head{Dropped: c.encoded.dropped, RequestID: transport.RequestID(c.res.Header), Enforced: c.encoded.enforced}
}

// stream reads the answer's events and yields them. It returns nil after a clean end and when the consumer has enough.
func (c *call) stream(ctx context.Context, yield func(vendors.Event, error) bool) *vendors.Error {
	head := c.head()
	if !yield(vendors.Event{Head: &head}, nil) {
		return nil
	}
	s := newStream(c.target, c.encoded.names)
	send := func(chunks []*ktmsv1.GenerateTextChunk, failed *vendors.Error) (bool, *vendors.Error) {
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
	if isJSON, err := startsObject(body); err != nil && !errors.Is(err, io.EOF) {
		return transport.Failure(ctx, c.target.Vendor, err)
	} else if isJSON {
		whole, err := io.ReadAll(io.LimitReader(body, maxAnswer))
		if err != nil {
			return transport.Failure(ctx, c.target.Vendor, err)
		}
		_, failed := send(s.whole(whole))
		return failed
	}

	events := sse.NewReader(body)
	for {
		event, err := events.Next()
		// What a missing blank line leaves of the last event may well be whole.
		if err != nil && (!errors.Is(err, io.ErrUnexpectedEOF) || len(event.Data) == 0) {
			_, failed := send(s.end(c.ended(ctx, err)))
			return failed
		}
		data := bytes.TrimSpace(event.Data)
		if len(data) == 0 {
			continue
		}
		chunks, failed := s.take(event.Name, data)
		if failed != nil {
			if err != nil { // half an event is a cut, not garbage
				failed = c.ended(ctx, err)
				last, why := s.end(failed)
				chunks, failed = append(chunks, last...), why
			}
			_, failed = send(chunks, failed)
			return failed
		}
		more, failed := send(chunks, nil)
		if !more {
			return failed
		}
		if s.stopped {
			more, failed := send(s.end(nil))
			if more {
				c.drain(body)
			}
			return failed
		}
	}
}

// ended says why a stream has no more events; nil is a clean end.
func (c *call) ended(ctx context.Context, err error) *vendors.Error {
	switch {
	case errors.Is(err, io.EOF) && ctx.Err() == nil:
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

// drain reads what follows the last event.
func (c *call) drain(r io.Reader) {
	giveUp := time.AfterFunc(drainTime, c.close)
	defer giveUp.Stop()
	_, _ = io.CopyN(io.Discard, r, drainBytes)
}
