// Package registry speaks to the gateway's node registry, and says in plain words what a refusal means.
package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
)

const (
	// dialTimeout bounds the making of a connection, the TLS handshake included.
	dialTimeout = 5 * time.Second
	// pingAfter is how long a silent connection is trusted. It is shorter than the gateway's patience with a silent node, so
	// that a connection that a router forgot costs no more than a few heartbeats.
	pingAfter = 6 * time.Second
	// pingTimeout is how long the answer to a ping may take.
	pingTimeout = 3 * time.Second
	// maxAnswer bounds what the gateway may send.
	maxAnswer = 4 << 20
)

// Client calls the registry.
type Client = ktmsv1connect.NodeRegistryServiceClient

// Options say where the gateway is and who calls.
type Options struct {
	// Address is the gateway's RPC port as host:port, or a URL. Its scheme wins over TLS.
	Address string
	// TLS dials over TLS with the system's CA roots.
	TLS bool
	// Key returns the node key. It is asked at every call, so that a new key in a file needs no restart.
	Key func() (string, error)
}

// KeyError says that there is no node key to call with.
type KeyError struct{ Err error }

func (e *KeyError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *KeyError) Unwrap() error { return e.Err }

// Target is where a gateway is.
type Target struct {
	// Host is host:port.
	Host string
	TLS  bool
}

// URL is the address that calls go to.
func (t Target) URL() string {
	if t.TLS {
		return "https://" + t.Host
	}
	return "http://" + t.Host
}

// Ports that an address without one means.
const (
	plainPort = "9090"
	tlsPort   = "443"
)

// ParseTarget reads an address. Without a port it is 443 over TLS, and 9090 else.
func ParseTarget(address string, overTLS bool) (Target, error) {
	host := strings.TrimSpace(address)
	if scheme, rest, found := strings.Cut(host, "://"); found {
		switch scheme {
		case "https":
			overTLS = true
		case "http":
			overTLS = false
		default:
			return Target{}, fmt.Errorf("the gateway's address %q has an unknown scheme: write it as host:port", address)
		}
		host = strings.TrimRight(rest, "/")
	}
	port := plainPort
	if overTLS {
		port = tlsPort
	}
	if name, given, err := net.SplitHostPort(host); err == nil {
		host, port = name, given
	}
	host = strings.Trim(host, "[]")
	target := Target{net.JoinHostPort(host, port), overTLS}
	u, err := url.Parse(target.URL())
	if host == "" || err != nil || u.Host != target.Host || u.Port() == "" {
		return Target{}, fmt.Errorf("the gateway's address %q is not right: write it as host:port", address)
	}
	return target, nil
}

// Dial returns a client. It makes no connection yet.
func Dial(o Options) (Client, error) {
	target, err := ParseTarget(o.Address, o.TLS)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(target.TLS)
	protocols.SetUnencryptedHTTP2(!target.TLS)
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		Protocols:           protocols,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	if target.TLS {
		// A proxy tunnels TLS; plaintext HTTP/2 it would not understand.
		transport.Proxy = http.ProxyFromEnvironment
	}
	bearer := func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			key, err := o.Key()
			if err != nil {
				return nil, connect.NewError(connect.CodeUnauthenticated, err.Error()).WithCause(&KeyError{err})
			}
			if info, ok := connect.CallInfoForClientContext(ctx); ok {
				info.RequestHeader().Set("Authorization", "Bearer "+key)
			}
			return next(ctx, spec)
		}
	}
	return ktmsv1connect.NewNodeRegistryServiceClient(connect.NewClient(connecthttp.NewTransport(
		&http.Client{Transport: transport}, target.URL(), connecthttp.WithGRPC(), connecthttp.WithReadMaxBytes(maxAnswer)), bearer)), nil
}

// Message is what the gateway said, or the error's text where it said nothing.
func Message(err error) string {
	var rpc *connect.Error
	if errors.As(err, &rpc) && rpc.IsRemote() && rpc.Message() != "" {
		return rpc.Message()
	}
	return err.Error()
}
