package guarded

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// script answers each question with the next answer, and the last one for ever.
type script struct {
	mu      sync.Mutex
	answers [][]string
	asked   []string
	err     error
}

func (s *script) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, network+" "+host)
	if s.err != nil {
		return nil, s.err
	}
	var addrs []netip.Addr
	for _, text := range s.answers[0] {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return addrs, nil
}

// wire notes what is dialled. Those among down refuse; the others lead to target.
type wire struct {
	mu     sync.Mutex
	target string
	down   []string
	dialed []string
}

var errDown = errors.New("connection refused")

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, address)
	down := slices.Contains(w.down, address)
	w.mu.Unlock()
	if down {
		return nil, errDown
	}
	if w.target == "" {
		near, far := net.Pipe()
		return near, far.Close()
	}
	return new(net.Dialer).DialContext(ctx, network, w.target)
}

func (w *wire) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dialed)
}

// TestRebinding is the attack: a name that is public when it is checked and when it is first dialled, and this machine or
// its cloud's metadata service from then on.
func TestRebinding(t *testing.T) {
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") }))
	t.Cleanup(inner.Close)
	for _, later := range [][]string{
		{"127.0.0.1"}, {"::1"}, {"169.254.169.254"}, {"10.0.0.1"}, {"::ffff:127.0.0.1"}, {"64:ff9b::7f00:1"}, {"2002:7f00:1::1"},
		{"93.184.215.14", "127.0.0.1"}, {"127.0.0.1", "93.184.215.14"}, {"0.0.0.0"}, {"::"}, {"fe80::1%eth0"},
	} {
		names := &script{answers: [][]string{{"93.184.215.14"}, {"93.184.215.14"}, later}}
		line := &wire{target: inner.Listener.Addr().String()}
		g := New(Options{Resolver: names, Dial: line.dial})
		client := &http.Client{
			Transport:     &http.Transport{DialContext: g.DialContext, DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		get := func() error {
			resp, err := client.Get("http://rebind.example/v1")
			if err == nil {
				resp.Body.Close()
			}
			return err
		}

		if _, err := g.Check("http://rebind.example/v1"); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Resolve(t.Context(), "tcp", "rebind.example"); err != nil {
			t.Fatal(err)
		}
		if err := get(); err != nil {
			t.Fatalf("while the name is public: %v", err)
		}
		for range 2 {
			if err := get(); !errors.Is(err, ErrForbidden) {
				t.Errorf("%v: got %v, want forbidden", later, err)
			}
		}
		if want := []string{"93.184.215.14:80"}; !reflect.DeepEqual(line.seen(), want) {
			t.Errorf("%v: dialled %v, want %v alone", later, line.seen(), want)
		}
		if len(names.asked) != 4 {
			t.Errorf("%v: asked %v, want one question for each dial", later, names.asked)
		}
	}
}

func TestDialContext_TriesEveryAddress(t *testing.T) {
	for _, test := range []struct {
		network string
		down    []string
		want    []string
		err     error
		asked   string
	}{
		{"tcp", nil, []string{"[2606:4700::1]:443"}, nil, "ip host"},
		{"tcp", []string{"[2606:4700::1]:443"}, []string{"[2606:4700::1]:443", "1.1.1.1:443"}, nil, "ip host"},
		{"tcp", []string{"[2606:4700::1]:443", "1.1.1.1:443", "1.0.0.1:443"}, []string{"[2606:4700::1]:443", "1.1.1.1:443", "1.0.0.1:443"}, errDown, "ip host"},
		{"tcp4", nil, []string{"1.1.1.1:443"}, nil, "ip4 host"},
		{"tcp6", nil, []string{"[2606:4700::1]:443"}, nil, "ip6 host"},
	} {
		names, line := &script{answers: [][]string{{"2606:4700::1", "::ffff:1.1.1.1", "1.0.0.1"}}}, &wire{down: test.down}
		conn, err := New(Options{Resolver: names, Dial: line.dial}).DialContext(t.Context(), test.network, "host:443")
		if !errors.Is(err, test.err) || (conn == nil) != (test.err != nil) {
			t.Errorf("%+v: got %v, %v", test, conn, err)
		}
		if !reflect.DeepEqual(line.seen(), test.want) || !reflect.DeepEqual(names.asked, []string{test.asked}) {
			t.Errorf("%+v: dialled %v, asked %v", test, line.seen(), names.asked)
		}
	}
}

func TestDialContext_Refuses(t *testing.T) {
	many := slices.Repeat([]string{"1.1.1.1"}, maxAnswers+1)
	for _, test := range []struct {
		network, address string
		answer           []string
		want             string
	}{
		{"udp", "host:1", []string{"1.1.1.1"}, "not tcp"},
		{"unix", "/run/x:1", []string{"1.1.1.1"}, "not tcp"},
		{"tcp", "host", []string{"1.1.1.1"}, "missing port"},
		{"tcp", "host:0", []string{"1.1.1.1"}, "port"},
		{"tcp", "host:http", []string{"1.1.1.1"}, "port"},
		{"tcp", ":80", []string{"1.1.1.1"}, "neither a name"},
		{"tcp", "2130706433:80", []string{"1.1.1.1"}, "neither a name"},
		{"tcp", "0x7f.1:80", []string{"1.1.1.1"}, "neither a name"},
		{"tcp", "127.0.0.1.:80", []string{"1.1.1.1"}, "neither a name"},
		{"tcp", "127.0.0.1:80", nil, "loopback"},
		{"tcp", "[::1]:80", nil, "loopback"},
		{"tcp", "[fe80::1%eth0]:80", nil, "link-local"},
		{"tcp4", "host:80", []string{"2606:4700::1"}, "no address"},
		{"tcp6", "host:80", []string{"::ffff:1.1.1.1"}, "no address"},
		{"tcp", "host:80", nil, "no address"},
		{"tcp", "host:80", many, "addresses"},
	} {
		line := &wire{}
		g := New(Options{Resolver: &script{answers: [][]string{test.answer}}, Dial: line.dial})
		if _, err := g.DialContext(t.Context(), test.network, test.address); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: got %v, want %q", test.network, test.address, err, test.want)
		}
		if len(line.seen()) > 0 {
			t.Errorf("%s %s: dialled %v", test.network, test.address, line.seen())
		}
	}
}

func TestDialContext_PassesTheResolversErrorOn(t *testing.T) {
	missing := &net.DNSError{Err: "no such host", Name: "host", IsNotFound: true}
	_, err := New(Options{Resolver: &script{err: missing}}).DialContext(t.Context(), "tcp", "host:80")
	var found *net.DNSError
	if !errors.As(err, &found) || !found.IsNotFound || errors.Is(err, ErrForbidden) {
		t.Errorf("got %v, want the resolver's own", err)
	}
}

// TestDialContext_ASilentAddressLeavesTimeForTheNext counts shares of the time, not the time itself.
func TestDialContext_ASilentAddressLeavesTimeForTheNext(t *testing.T) {
	const whole = time.Hour
	var shares []time.Duration
	g := New(Options{Timeout: whole, Resolver: &script{answers: [][]string{{"1.1.1.1", "1.0.0.1"}}}, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		deadline, _ := ctx.Deadline()
		shares = append(shares, time.Until(deadline))
		return nil, errDown
	}})
	if _, err := g.DialContext(t.Context(), "tcp", "host:80"); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	if len(shares) != 2 || shares[0] > whole/2 || shares[1] <= whole/2 || shares[1] > whole {
		t.Errorf("the addresses got %v of %v", shares, whole)
	}
}

func TestDialContext_EndsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dials := 0
	g := New(Options{Resolver: &script{answers: [][]string{{"1.1.1.1", "1.0.0.1"}}}, Dial: func(context.Context, string, string) (net.Conn, error) {
		dials++
		cancel()
		return nil, errDown
	}})
	if _, err := g.DialContext(ctx, "tcp", "host:80"); !errors.Is(err, errDown) || dials != 1 {
		t.Errorf("got %v after %d dials, want one", err, dials)
	}
}

// TestDialContext_Loopback dials for real, by address and by name.
func TestDialContext_Loopback(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, endpoint := range []string{server.URL, "http://engine.example:" + port} {
		for _, allow := range []bool{false, true} {
			g := New(Options{AllowLocal: allow, Resolver: &script{answers: [][]string{{"127.0.0.1"}}}})
			client := &http.Client{Transport: &http.Transport{DialContext: g.DialContext, DisableKeepAlives: true}}
			resp, err := client.Get(endpoint)
			if err == nil {
				resp.Body.Close()
			}
			if allow && err != nil || !allow && !errors.Is(err, ErrForbidden) {
				t.Errorf("%s, allowed %t: got %v", endpoint, allow, err)
			}
		}
	}
}
