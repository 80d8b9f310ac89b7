package gemini

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/sse"
	"github.com/ai-process/ktms/vendors/transport"
)

// maxAnswer bounds a complete answer as sse.MaxEventBytes bounds an event: several pictures in base64.
const maxAnswer = 64 << 20

// keyHeader carries the credential. The vendor takes it in the URL, too, where proxies would write it into logs.
const keyHeader = "X-Goog-Api-Key"

// Options configure a Vendor. The zero value is ready for use.
type Options = transport.Options

// Vendor speaks the dialect. It implements vendors.Vendor and vendors.Embedder.
type Vendor struct {
	client    *transport.Client
	userAgent string
}

var (
	_ vendors.Vendor   = (*Vendor)(nil)
	_ vendors.Embedder = (*Vendor)(nil)
)

// New returns a Vendor.
func New(o Options) *Vendor { return &Vendor{client: o.Client(), userAgent: o.UserAgent()} }

// CloseIdleConnections closes the connections that no call uses.
func (v *Vendor) CloseIdleConnections() { v.client.CloseIdleConnections() }

// Generate implements vendors.Vendor.
func (v *Vendor) Generate(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) (*vendors.Answer, error) {
	encoded, failed := encode(t, req)
	if failed != nil {
		return nil, failed
	}
	res, failed := v.post(ctx, t, "generateContent", encoded.body, false)
	if failed != nil {
		return nil, failed
	}
	defer res.Body.Close()
	body, failed := readAll(ctx, t, res)
	if failed != nil {
		return nil, failed
	}
	response, failed := decode(t, encoded.names, body)
	if failed != nil {
		return nil, transport.Within(failed, res)
	}
	return &vendors.Answer{Head: encoded.head(res), Response: response}, nil
}

// Stream implements vendors.Vendor.
func (v *Vendor) Stream(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) iter.Seq2[vendors.Event, error] {
	return func(yield func(vendors.Event, error) bool) {
		encoded, failed := encode(t, req)
		if failed != nil {
			yield(vendors.Event{}, failed)
			return
		}
		res, failed := v.post(ctx, t, "streamGenerateContent", encoded.body, true)
		if failed != nil {
			yield(vendors.Event{}, failed)
			return
		}
		defer res.Body.Close()
		head := encoded.head(res)
		if !yield(vendors.Event{Head: &head}, nil) {
			return
		}
		if failed := readStream(ctx, newStream(t, encoded.asked, encoded.names), res.Body, yield); failed != nil {
			yield(vendors.Event{}, transport.Within(failed, res))
		}
	}
}

// head is what there is to say before the answer.
func (e *encoded) head(res *http.Response) vendors.Head {
	return vendors.Head{Dropped: e.dropped, RequestID: transport.RequestID(res.Header), Enforced: e.enforced}
}

// post makes a call of a method of the target's model and returns once the vendor accepted it.
func (v *Vendor) post(ctx context.Context, t vendors.Target, method string, body []byte, stream bool) (*http.Response, *vendors.Error) {
	address, failed := endpoint(t, method, stream)
	if failed != nil {
		return nil, failed
	}
	// A bytes.Reader gives the request a GetBody, which HTTP/2 needs to send it again after a GOAWAY that came first.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, transport.Failure(ctx, t.Vendor, err)
	}
	if failed := v.headers(req.Header, t, stream); failed != nil {
		return nil, failed
	}
	return v.client.Call(req, t.Vendor, func(res *http.Response) *vendors.Error { return statusError(t, res) })
}

// headers sets all that goes out: nothing of the caller's request does.
func (v *Vendor) headers(h http.Header, t vendors.Target, stream bool) *vendors.Error {
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
	h.Set(keyHeader, key)
	return nil
}

// readAll reads a complete answer.
func readAll(ctx context.Context, t vendors.Target, res *http.Response) ([]byte, *vendors.Error) {
	return transport.ReadAll(ctx, t.Vendor, res, maxAnswer)
}

// readStream reads the answer's events and yields them. It returns nil after a clean end and when the consumer has
// enough. The vendor ends a stream by ending the body; nothing else says so.
func readStream(ctx context.Context, s *stream, body io.Reader, yield func(vendors.Event, error) bool) *vendors.Error {
	send := func(chunks []*ktmsv1.GenerateTextChunk) bool {
		for _, chunk := range chunks {
			if !yield(vendors.Event{Chunk: chunk}, nil) {
				return false
			}
		}
		return true
	}
	events := sse.NewReader(&bareJSON{src: body, fresh: true})
	for {
		event, err := events.Next()
		// What a missing blank line leaves of the last event may well be whole.
		if err != nil && (!errors.Is(err, io.ErrUnexpectedEOF) || len(event.Data) == 0) {
			cause := ended(ctx, s.target, err)
			last, failed := s.end(cause, cause != nil)
			if !send(last) {
				return nil
			}
			return failed
		}
		if data := bytes.TrimSpace(event.Data); len(data) == 0 || string(data) == "[DONE]" {
			continue // proxies that speak several dialects end every stream so
		}
		chunks, failed := s.take(event.Data)
		if failed != nil {
			cut := err != nil && failed.Err != nil // half an event is a cut, not garbage
			if cut {
				failed = ended(ctx, s.target, err)
			}
			var last []*ktmsv1.GenerateTextChunk
			last, failed = s.end(failed, cut)
			chunks = append(chunks, last...)
		}
		if !send(chunks) {
			return nil
		}
		if failed != nil {
			return failed
		}
	}
}

// ended says why a stream has no more events; nil is a clean end.
func ended(ctx context.Context, t vendors.Target, err error) *vendors.Error {
	switch {
	case errors.Is(err, io.EOF) && ctx.Err() == nil:
		return nil
	case errors.Is(err, sse.ErrTooLong):
		e := unavailable(t, "sent an event that is too long")
		e.Err = err
		return e
	}
	return transport.Failure(ctx, t.Vendor, err)
}
