package bedrock

import (
	"context"
	"iter"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/transport"
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

// Fields implements vendors.Vendor.
func (v *Vendor) Fields(_, model string) vendors.Table { return fieldsOf(model) }

// Generate implements vendors.Vendor.
func (v *Vendor) Generate(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) (*vendors.Answer, error) {
	c, failed := v.prepare(t, req, false)
	if failed != nil {
		return nil, failed
	}
	out, err := c.sdk.Converse(ctx, c.encoded.input)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	response, failed := c.decode(out)
	if failed != nil {
		return nil, c.within(failed)
	}
	return &vendors.Answer{Head: c.head(), Response: response}, nil
}

// Stream implements vendors.Vendor.
func (v *Vendor) Stream(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) iter.Seq2[vendors.Event, error] {
	return func(yield func(vendors.Event, error) bool) {
		c, failed := v.prepare(t, req, true)
		if failed != nil {
			yield(vendors.Event{}, failed)
			return
		}
		defer c.exchange.close()
		if _, err := c.sdk.ConverseStream(ctx, c.encoded.stream()); err != nil {
			yield(vendors.Event{}, c.failure(ctx, err))
			return
		}
		if failed := c.stream(ctx, yield); failed != nil {
			yield(vendors.Event{}, c.within(failed))
		}
	}
}

// call is one call on its way.
type call struct {
	target   vendors.Target
	creds    credential
	encoded  *encoded
	exchange *exchange
	sdk      *bedrockruntime.Client
}

// prepare does all that can be done before the call goes out. The SDK's client holds nothing but options and costs a few
// microseconds, so that each call has its own: nothing has to be found by a credential.
func (v *Vendor) prepare(t vendors.Target, req *ktmsv1.GenerateTextRequest, stream bool) (*call, *vendors.Error) {
	creds, failed := parseKey(t)
	if failed != nil {
		return nil, failed
	}
	address, failed := endpoint(t)
	if failed != nil {
		return nil, failed
	}
	if t.Model == "" {
		return nil, &vendors.Error{Kind: vendors.Denied, Vendor: t.Vendor, Message: "the target names no model"}
	}
	encoded, failed := encode(t, req)
	if failed != nil {
		return nil, failed
	}
	x := &exchange{client: v.client, userAgent: v.userAgent, streams: stream}
	return &call{target: t, creds: creds, encoded: encoded, exchange: x, sdk: newSDK(creds, address, x)}, nil
}

func (c *call) head() vendors.Head {
	return vendors.Head{
		Dropped: c.encoded.dropped, Enforced: c.encoded.enforced, RequestID: transport.RequestID(c.exchange.header()),
	}
}

// within adds the status to an error that came in an answer with a good one.
func (c *call) within(e *vendors.Error) *vendors.Error {
	if e.Status == 0 && e.Kind != vendors.Canceled {
		e.Status = c.exchange.status()
	}
	return e
}
