// Package transport is what the dialects share about HTTP: a tuned pool of connections, limits on silence, and the
// reading of failures: what a status means, how long to wait, and what may be said of it without a credential in it.
package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Why the numbers are what they are. A gateway talks to few hosts, with many calls at once, and each call holds its
// connection for seconds to minutes.
const (
	// DefaultConnect bounds connecting, TLS included: a host that needs longer is down.
	DefaultConnect = 10 * time.Second
	// idlePerHost connections wait for the next call. The standard library keeps two, so that a burst of a hundred
	// calls would shake hands anew for almost each.
	idlePerHost = 256
	// idleFor is shorter than the idle time of the usual load balancers (60 s and more), so that a connection is
	// rarely reused just as the other side closes it.
	idleFor = 55 * time.Second
	// keepAlive and pings find a dead peer under a stream that is silent because a model thinks.
	keepAlive   = 15 * time.Second
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	// maxHeader bounds the answer's header; vendors send a few KiB.
	maxHeader = 256 << 10
	// maxRedirects within one host.
	maxRedirects = 3
)

// Limits bound the waiting of a call. Zero of the first stands for its default, zero of the others for no limit.
type Limits struct {
	// Connect bounds connecting to the host, TLS included.
	Connect time.Duration
	// FirstByte bounds the wait from sending the request to the first byte of the answer's body. There is none by
	// default: an engine with a queue sends nothing, not even headers, until it is the request's turn.
	FirstByte time.Duration
	// Silence bounds the gaps between the bytes of an answer, after the first.
	Silence time.Duration
}

// Client makes calls. It is safe for concurrent use and never retries.
type Client struct {
	http   http.Client
	limits Limits
}

// NewClient returns a Client. A nil carrier is a new pool of connections.
func NewClient(carrier http.RoundTripper, limits Limits) *Client {
	if limits.Connect == 0 {
		limits.Connect = DefaultConnect
	}
	if carrier == nil {
		carrier = Pool(limits.Connect, nil)
	}
	return &Client{http: http.Client{Transport: carrier, CheckRedirect: stayAtHome}, limits: limits}
}

// Pool returns a pool of connections. A nil dial connects to any host, through the proxy that the environment names; any
// other dials by itself, and no proxy stands between.
func Pool(connect time.Duration, dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	proxy := http.ProxyFromEnvironment
	if dial == nil {
		dial = (&net.Dialer{Timeout: connect, KeepAlive: keepAlive}).DialContext
	} else {
		proxy = nil
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Transport{
		Proxy:                  proxy,
		DialContext:            dial,
		TLSHandshakeTimeout:    connect,
		MaxIdleConns:           0, // bounded per host
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		// Asking for gzip would let proxies gather a stream into blocks before they pass it on.
		DisableCompression: true,
	}
}

// stayAtHome follows redirects within scheme and host only: a credential must not travel elsewhere, and a redirect that
// turns POST into GET leads nowhere. The redirect itself is then the answer.
func stayAtHome(req *http.Request, via []*http.Request) error {
	first := via[0]
	if req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host || req.Method != first.Method || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// CloseIdleConnections closes the connections that no call uses.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// ErrTimeout is wrapped by the errors of a call that ran into one of its limits.
var ErrTimeout = errors.New("timed out")

// Do makes one call. The answer's body has to be closed, which also ends the call if it still runs; so does the
// context of the request.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	b := &body{ctx: ctx, cancel: cancel, silence: c.limits.Silence}
	if wait := c.limits.FirstByte; wait > 0 {
		b.first = time.AfterFunc(wait, func() { cancel(fmt.Errorf("%w: no answer within %s", ErrTimeout, wait)) })
	}
	if wait := c.limits.Silence; wait > 0 {
		b.gap = time.AfterFunc(wait, func() { cancel(fmt.Errorf("%w: nothing came for %s", ErrTimeout, wait)) })
		b.gap.Stop()
	}
	res, err := c.http.Do(req.WithContext(ctx)) //nolint:gosec // the address is the operator's: models name their endpoints
	if err != nil {
		err = b.reason(err)
		b.stop()
		return nil, err
	}
	b.ReadCloser = res.Body
	res.Body = b
	return res, nil
}

// body holds an answer to its limits. Close may be called while Read waits.
type body struct {
	io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc
	silence time.Duration
	begun   bool        // the first byte came
	first   *time.Timer // until then
	gap     *time.Timer // from then on, while a read waits
}

func (b *body) Read(p []byte) (int, error) {
	if b.begun && b.gap != nil {
		b.gap.Reset(b.silence)
		defer b.gap.Stop()
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !b.begun {
		b.begun = true
		if b.first != nil {
			b.first.Stop()
		}
	}
	if err != nil && err != io.EOF {
		err = b.reason(err)
	}
	return n, err
}

// Close ends the call.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.stop()
	return err
}

func (b *body) stop() {
	if b.first != nil {
		b.first.Stop()
	}
	if b.gap != nil {
		b.gap.Stop()
	}
	b.cancel(nil)
}

// reason prefers the limit that ended a call to the words of the transport about it.
func (b *body) reason(err error) error {
	if cause := context.Cause(b.ctx); errors.Is(cause, ErrTimeout) {
		return cause
	}
	return err
}
