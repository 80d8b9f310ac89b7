package bedrock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/ai-process/ktms/vendors/transport"
)

// maxAnswer bounds a complete answer: long texts and tool arguments reach a few megabytes, and each answer may claim
// this much memory.
const maxAnswer = 64 << 20

var (
	errSecondCall = errors.New("the SDK tried to call a second time")
	errTooLong    = fmt.Errorf("answered with more than %d bytes", maxAnswer)
)

// newSDK returns a client of the SDK whose one call goes through x.
func newSDK(creds credential, address string, x *exchange) *bedrockruntime.Client {
	o := bedrockruntime.Options{
		Region:                     creds.region,
		Credentials:                credentials.NewStaticCredentialsProvider(creds.id, creds.secret, creds.token),
		HTTPClient:                 x,
		Retryer:                    aws.NopRetryer{},
		DisableClockSkewCorrection: true,
	}
	if address != "" {
		o.BaseEndpoint = &address
	}
	return bedrockruntime.New(o, func(o *bedrockruntime.Options) {
		// New takes a bearer token of the environment where there is one. The target's key is the only credential.
		o.BearerAuthTokenProvider = nil
		o.AuthSchemePreference = []string{"sigv4"}
		o.APIOptions = []func(*middleware.Stack) error{x.trim}
	})
}

// exchange carries the one HTTP call of a call of the SDK, and keeps what the SDK gives away of its answer.
type exchange struct {
	client    *transport.Client
	userAgent string
	streams   bool

	request io.ReaderAt // the body that goes out
	sent    bool
	res     *http.Response
	body    []byte // of an answer that is not a stream
	err     error  // of the transport
}

// trim takes out of the SDK's steps those that say more than the call needs: headers about attempts and the machine. The
// events of a stream are read elsewhere: the SDK's reader lets go of events that nobody took yet when an error follows.
func (x *exchange) trim(stack *middleware.Stack) error {
	// A step that an operation does not have is none to remove.
	for _, id := range []string{"ClientRequestID", "UserAgent", "RecursionDetection"} {
		_, _ = stack.Build.Remove(id)
	}
	_, _ = stack.Finalize.Remove("Retry") // attempts are the caller's, and each says its number in a header
	_, _ = stack.Deserialize.Remove("OperationEventStreamDeserializer")
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("KeystoneBody", func(
		ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
	) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if req, ok := in.Request.(*smithyhttp.Request); ok {
			x.request, _ = req.GetStream().(io.ReaderAt)
		}
		return next.HandleFinalize(ctx, in)
	}), middleware.After)
}

// Do implements the SDK's HTTPClient.
func (x *exchange) Do(req *http.Request) (*http.Response, error) {
	if x.sent {
		return nil, errSecondCall
	}
	x.sent = true
	// None of these is signed.
	req.Header.Set("User-Agent", x.userAgent)
	req.Header.Set("Accept", "application/json")
	if x.streams {
		req.Header.Set("Accept", "application/vnd.amazon.eventstream")
	}
	if x.request != nil && req.ContentLength > 0 {
		// HTTP/2 needs the body again after a GOAWAY that came first.
		size := req.ContentLength
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(x.request, 0, size)), nil }
		req.Body, _ = req.GetBody()
	}
	res, err := x.client.Do(req)
	if err != nil {
		x.err = err
		return nil, err
	}
	x.res = res
	given := *res // the SDK's; ours keeps its body
	switch {
	case res.StatusCode < 200 || res.StatusCode > 299:
		x.body = transport.ErrorBody(res)
		_ = res.Body.Close()
		given.Body = io.NopCloser(bytes.NewReader(x.body))
	case x.streams:
		given.Body = http.NoBody
	default:
		x.body, x.err = readAll(res.Body)
		_ = res.Body.Close()
		if x.err != nil {
			return nil, x.err
		}
		// The SDK passes on what is no text, which no answer of ours can hold.
		x.body = bytes.ToValidUTF8(x.body, []byte("\uFFFD"))
		given.Body = io.NopCloser(bytes.NewReader(x.body))
	}
	return &given, nil
}

func readAll(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = errTooLong
	}
	return body, err
}

func (x *exchange) close() {
	if x.res != nil {
		_ = x.res.Body.Close()
	}
}

func (x *exchange) header() http.Header {
	if x.res == nil {
		return nil
	}
	return x.res.Header
}

// status is that of the answer, 0 if there was none.
func (x *exchange) status() int {
	if x.res == nil {
		return 0
	}
	return x.res.StatusCode
}
