package registry

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
)

// scripted answers every heartbeat with one error.
type scripted struct {
	ktmsv1connect.UnimplementedNodeRegistryServiceHandler
	err error
	key string
}

func (s *scripted) Heartbeat(ctx context.Context, _ *ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
	info, _ := connect.CallInfoForServerContext(ctx)
	s.key = info.RequestHeader().Get("Authorization")
	return &ktmsv1.HeartbeatResponse{}, s.err
}

func serve(t *testing.T, handler http.Handler, overTLS bool) string {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(t.Output(), "", 0)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(!overTLS)
	s.Config.Protocols.SetHTTP2(overTLS)
	s.EnableHTTP2 = overTLS
	if overTLS {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func mount(s *scripted) http.Handler {
	server, mux := connect.NewServer(), http.NewServeMux()
	ktmsv1connect.RegisterNodeRegistryServiceHandler(server, s)
	connecthttp.Mount(mux, server)
	return mux
}

func beat(t *testing.T, o Options) error {
	t.Helper()
	if o.Key == nil {
		o.Key = func() (string, error) { return "ktms_node_x", nil }
	}
	c, err := Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Heartbeat(t.Context(), &ktmsv1.HeartbeatRequest{NodeId: "n"})
	return err
}

func TestCallsCarryTheKey(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	if err := beat(t, Options{Address: serve(t, mount(s), false)}); err != nil {
		t.Fatal(err)
	}
	if s.key != "Bearer ktms_node_x" {
		t.Errorf("the gateway saw %q", s.key)
	}
}

func TestExplainRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		cause Cause
		text  string
	}{
		{connect.NewError(connect.CodeUnauthenticated, "invalid API key"), Refused, "does not accept the node key (invalid API key)"},
		{connect.NewError(connect.CodePermissionDenied, `key belongs to node "x"`), Refused, `key belongs to node "x". A key is bound to one machine`},
		{connect.NewError(connect.CodePermissionDenied, `model "x" not permitted for this node key`), Refused, "--only-model"},
		{connect.NewError(connect.CodePermissionDenied, `this API key lacks the scope "node"`), Refused, "key of another kind"},
		{connect.NewError(connect.CodePermissionDenied, "no"), Refused, "refuses the node: no"},
		{connect.NewError(connect.CodeInvalidArgument, "endpoint: private address"), Refused, "endpoint: private address"},
		{connect.NewError(connect.CodeFailedPrecondition, "no pool"), Refused, "refuses the node: no pool"},
		{connect.NewError(connect.CodeFailedPrecondition, `another agent has registered node "n" since: stop one`), Replaced, `another agent has registered node "n" since: stop one`},
		{connect.NewError(connect.CodeNotFound, "node n"), Unknown, "node n"},
		{connect.NewError(connect.CodeUnimplemented, "x"), Old, "gRPC port (9090"},
		{connect.NewError(connect.CodeInternal, "oh"), Away, "answered with an error: oh"},
		{connect.NewError(connect.CodeResourceExhausted, "slow down"), Away, "too much to do: slow down"},
		{connect.NewError(connect.CodeUnavailable, "starting"), Away, "starting"},
	} {
		err := beat(t, Options{Address: serve(t, mount(&scripted{err: c.err}), false)})
		if got := Explain(err); got.Cause != c.cause || !strings.Contains(got.Text, c.text) {
			t.Errorf("%v: %+v, want cause %d and %q", c.err, got, c.cause, c.text)
		}
	}
}

// TestExplainAddresses goes to addresses where no registry answers.
func TestExplainAddresses(t *testing.T) {
	t.Parallel()
	plain, overTLS := serve(t, mount(&scripted{}), false), serve(t, mount(&scripted{}), true)
	old := httptest.NewUnstartedServer(http.NotFoundHandler()) // HTTP/1.1 alone
	old.Config.ErrorLog = log.New(t.Output(), "", 0)
	old.StartTLS()
	t.Cleanup(old.Close)
	forbids := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, c := range []struct {
		name string
		o    Options
		text string
	}{
		{"TLS to plaintext", Options{Address: plain, TLS: true}, "leave --tls out"},
		{"plaintext to TLS", Options{Address: overTLS}, "--tls must be given"},
		{"plaintext to TLS without HTTP/2", Options{Address: old.Listener.Addr().String()}, "--tls must be given"},
		{"a certificate of nobody", Options{Address: overTLS, TLS: true}, "certificate of the gateway is not trusted"},
		{"a certificate of another time", Options{Address: outOfDate(t), TLS: true}, "the clock of this machine"},
		{"nobody", Options{Address: closed.Addr().String()}, "nothing listens at the gateway's address: start the gateway, or give its gRPC address with --proxy-addr (port 9090 by default)"},
		{"no name", Options{Address: "gateway.invalid:9090"}, "cannot be resolved"},
		{"another server", Options{Address: serve(t, http.NotFoundHandler(), false)}, "this is not the gateway's gRPC port (9090), maybe its HTTP port"},
		{"a server that forbids", Options{Address: serve(t, forbids, false)}, "this is not the gateway's gRPC port (9090), maybe its HTTP port"},
	} {
		// A busy machine may let a connection time out first, which is another trouble.
		deadline := time.Now().Add(time.Minute)
		got := ""
		for !strings.Contains(got, c.text) && time.Now().Before(deadline) {
			err := beat(t, c.o)
			if err == nil {
				t.Fatalf("%s: no error", c.name)
			}
			got = Explain(err).Text
		}
		if !strings.Contains(got, c.text) {
			t.Errorf("%s: %q, want %q", c.name, got, c.text)
		}
	}
}

// outOfDate is a TLS endpoint as a machine sees it whose clock is ten minutes ahead of a certificate's end.
func outOfDate(t *testing.T) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(-10 * time.Minute)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(t.Output(), "", 0)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: private}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestExplainKeys(t *testing.T) {
	t.Parallel()
	err := beat(t, Options{Address: "127.0.0.1:1", Key: func() (string, error) { return "", errors.New("NODE_KEY is empty") }})
	if got := Explain(err); got != (Trouble{Refused, "NODE_KEY is empty"}) {
		t.Errorf("%+v", got)
	}
}

func TestExplainSilence(t *testing.T) {
	t.Parallel()
	got := Explain(connect.NewError(connect.CodeDeadlineExceeded, "x").WithCause(context.DeadlineExceeded))
	if got.Cause != Away || !strings.Contains(got.Text, "in time") {
		t.Errorf("%+v", got)
	}
}

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address string
		tls     bool
		want    string
	}{
		{"127.0.0.1:9090", false, "http://127.0.0.1:9090"},
		{"proxy.example.com:443", true, "https://proxy.example.com:443"},
		{"proxy.example.com", true, "https://proxy.example.com:443"},
		{"proxy.example.com", false, "http://proxy.example.com:9090"},
		{"https://proxy.example.com/", false, "https://proxy.example.com:443"},
		{"http://proxy:50051", true, "http://proxy:50051"},
		{"[::1]:9090", false, "http://[::1]:9090"},
		{"::1", false, "http://[::1]:9090"},
		{"", false, ""}, {":9090", false, ""}, {"ftp://x", false, ""}, {"a/b", false, ""}, {"a b", false, ""}, {"user@host:1", false, ""},
	} {
		got, err := ParseTarget(c.address, c.tls)
		if (err != nil) != (c.want == "") || (err == nil && got.URL() != c.want) {
			t.Errorf("%q: %q, %v, want %q", c.address, got.URL(), err, c.want)
		}
	}
}
