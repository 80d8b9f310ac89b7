// Package guarded dials endpoints that others supply, without letting them name an address inside the network.
//
// Check refuses an endpoint's URL when it is registered. DialContext resolves its host at every dial, judges every
// address of the answer and connects to the very addresses that it judged, so that a name whose answer changes later
// (DNS rebinding) gains nothing.
//
// What its users have to see to, since a dialler cannot:
//   - Redirects are never followed: let http.Client.CheckRedirect return http.ErrUseLastResponse. The address behind one
//     would be judged like any other, but nobody registered it, and headers that are meant for the endpoint go along.
//   - http.Transport.Proxy is nil: a proxy resolves and dials by itself.
//   - A pool of connections belongs to one Guard. A pooled connection was judged by the Guard that dialled it, and
//     another Guard might not allow its address.
package guarded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultTimeout bounds resolving and connecting together: a host that needs longer is down.
	DefaultTimeout = 10 * time.Second
	// minAttempt is what one address gets to connect at least, however many there are: a handshake around the world
	// with one lost packet.
	minAttempt = 2 * time.Second
	// maxAnswers is how many addresses a name may have. An endpoint has a handful; more are work that a stranger makes.
	maxAnswers = 32
)

// ErrForbidden is wrapped by the errors for addresses that may not be dialled. Such an error names the address. It is
// meant for operators: whoever supplied the endpoint would learn from it what names inside the network stand for.
var ErrForbidden = errors.New("address not allowed")

// Resolver finds the addresses of a host; *net.Resolver is one.
type Resolver interface {
	// LookupNetIP returns addresses of the network ip, ip4 or ip6.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options says what may be dialled beside public addresses, and how.
type Options struct {
	// Allowed are networks that may be dialled although they are not public. Multicast, unspecified addresses and the
	// metadata services of clouds stay closed even so. Loopback and link-local open only to a network within them:
	// 0.0.0.0/0 does not mean the gateway itself.
	Allowed []netip.Prefix
	// AllowLocal opens loopback and link-local, for development.
	AllowLocal bool
	// Timeout bounds resolving and connecting together; 0 is DefaultTimeout.
	Timeout time.Duration
	// Resolver is net.DefaultResolver when nil.
	Resolver Resolver
	// Dial connects to an address that was judged; nil is that of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Guard dials public addresses and those that its options allow. It is safe for concurrent use.
type Guard struct{ options Options }

// New returns a Guard.
func New(options Options) *Guard {
	allowed := make([]netip.Prefix, 0, len(options.Allowed))
	for _, network := range options.Allowed {
		// Addresses are compared as IPv4 where they are IPv4, so networks must be, too.
		if addr := network.Addr(); addr.Is4In6() && network.Bits() >= mappedBits {
			network = netip.PrefixFrom(addr.Unmap(), network.Bits()-mappedBits)
		}
		allowed = append(allowed, network.Masked())
	}
	options.Allowed = allowed
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	if options.Resolver == nil {
		options.Resolver = net.DefaultResolver
	}
	if options.Dial == nil {
		options.Dial = new(net.Dialer).DialContext
	}
	return &Guard{options}
}

// mappedBits is how many bits stand before the IPv4 address in ::ffff:a.b.c.d.
const mappedBits = 96

// DialContext connects to host:port over tcp, tcp4 or tcp6, as http.Transport.DialContext. One closed address among the
// answers refuses them all: who mixes them is waiting for the wrong one to be picked. It wraps ErrForbidden then.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("port %q is not a number from 1 to 65535", service)
	}
	ctx, cancel := context.WithTimeout(ctx, g.options.Timeout)
	defer cancel()
	addrs, err := g.Resolve(ctx, network, host)
	if err != nil {
		return nil, err
	}
	var first error
	for i, addr := range addrs {
		conn, err := g.attempt(ctx, network, netip.AddrPortFrom(addr, uint16(port)), len(addrs)-i)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// attempt connects to one address and leaves the others their share of the time.
func (g *Guard) attempt(ctx context.Context, network string, to netip.AddrPort, left int) (net.Conn, error) {
	if deadline, bound := ctx.Deadline(); bound && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(time.Until(deadline)/time.Duration(left), minAttempt))
		defer cancel()
	}
	return g.options.Dial(ctx, network, to.String())
}

// Resolve returns the addresses that DialContext would try for a host, at least one, all of them judged. It wraps
// ErrForbidden when one is closed. An answer is good for this moment alone: dial with DialContext all the same.
func (g *Guard) Resolve(ctx context.Context, network, host string) ([]netip.Addr, error) {
	var family string
	switch network {
	case "tcp", "tcp4", "tcp6":
		family = "ip" + strings.TrimPrefix(network, "tcp")
	default:
		return nil, fmt.Errorf("network %q is not tcp", network)
	}
	addrs, err := g.lookup(ctx, family, host)
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if err := g.judge(addr); err != nil {
			return nil, fmt.Errorf("host %q: %w", host, err)
		}
	}
	addrs = slices.DeleteFunc(addrs, func(addr netip.Addr) bool { return family == "ip4" && !addr.Is4() || family == "ip6" && addr.Is4() })
	if len(addrs) == 0 {
		return nil, fmt.Errorf("host %q has no address for %s", host, network)
	}
	return addrs, nil
}

// lookup returns what a host stands for, IPv4 as IPv4.
func (g *Guard) lookup(ctx context.Context, family, host string) ([]netip.Addr, error) {
	addr, err := netip.ParseAddr(host)
	if err == nil {
		return []netip.Addr{addr.Unmap()}, nil
	}
	// A dialler takes no host for this machine, and some resolvers read 0x7f.1 as an address.
	if host == "" || endsInNumber(host) {
		return nil, fmt.Errorf("host %q is neither a name nor an IP address in its usual form", host)
	}
	answers, err := g.options.Resolver.LookupNetIP(ctx, family, host)
	if err != nil {
		return nil, err
	}
	if len(answers) > maxAnswers {
		return nil, fmt.Errorf("host %q has %d addresses, more than %d", host, len(answers), maxAnswers)
	}
	addrs := make([]netip.Addr, 0, len(answers))
	for _, answer := range answers {
		addrs = append(addrs, answer.Unmap())
	}
	return addrs, nil
}
