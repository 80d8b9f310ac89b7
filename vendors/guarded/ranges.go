package guarded

import (
	"fmt"
	"net/netip"
)

// opening says which of the given networks open a closed range.
type opening int

const (
	// never: no endpoint lies there, or nobody may reach what does.
	never opening = iota
	// named: a network within the range. A wider one need not have meant it.
	named
	// contained: any network that has the address.
	contained
)

// closed is a range that is not public.
type closed struct {
	network netip.Prefix
	// what completes "the address is …".
	what string
	open opening
}

func in(network, what string, open opening) closed {
	return closed{netip.MustParsePrefix(network), what, open}
}

// ranges are what IANA's registries of special-purpose addresses call not globally reachable, and the addresses at which
// clouds give out credentials. The first that has an address counts.
var ranges = []closed{
	// AWS, Google, Azure, Oracle, Alibaba and OpenStack; the third one is public in form.
	in("169.254.169.0/24", "a cloud's metadata service", never),
	in("169.254.170.0/24", "a cloud's metadata service", never),
	in("168.63.129.16/32", "a cloud's metadata service", never),
	in("192.0.0.192/32", "a cloud's metadata service", never),
	in("100.100.100.200/32", "a cloud's metadata service", never),
	in("fd00:ec2::/32", "a cloud's metadata service", never),
	in("fd20:ce::254/128", "a cloud's metadata service", never),
	in("fe80::a9fe:a9fe/128", "a cloud's metadata service", never),

	in("0.0.0.0/8", "unspecified", never),
	in("224.0.0.0/4", "multicast", never),
	in("255.255.255.255/32", "broadcast", never),
	in("127.0.0.0/8", "loopback", named),
	in("169.254.0.0/16", "link-local", named),
	in("10.0.0.0/8", "private", contained),
	in("172.16.0.0/12", "private", contained),
	in("192.168.0.0/16", "private", contained),
	in("100.64.0.0/10", "shared by a provider's customers (CGNAT)", contained),
	in("192.0.0.0/24", "reserved for protocols", contained),
	in("192.0.2.0/24", "for documentation", contained),
	in("198.51.100.0/24", "for documentation", contained),
	in("203.0.113.0/24", "for documentation", contained),
	in("192.88.99.0/24", "a 6to4 relay", contained),
	in("198.18.0.0/15", "for benchmarks", contained),
	in("240.0.0.0/4", "reserved", contained),

	in("::/128", "unspecified", never),
	in("::1/128", "loopback", named),
	in("::/96", "an IPv4 address in an abandoned form", never),
	in("::ffff:0:0:0/96", "an IPv4 address in a translator's form", never),
	in("ff00::/8", "multicast", never),
	in("fe80::/10", "link-local", named),
	in("fec0::/10", "private", contained),
	in("fc00::/7", "private", contained),
	in("64:ff9b:1::/48", "behind a private NAT64", contained),
	in("2001::/32", "a Teredo tunnel", contained),
	in("2001:2::/48", "for benchmarks", contained),
	in("2001:db8::/32", "for documentation", contained),
	in("3fff::/20", "for documentation", contained),
	in("2001::/23", "reserved for protocols", contained),
}

// All public IPv6 addresses lie in global, but for those that the public NAT64 makes of IPv4.
var (
	global   = netip.MustParsePrefix("2000::/3")
	nat64    = netip.MustParsePrefix("64:ff9b::/96")
	reserved = in("::/0", "reserved", contained)

	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// judge returns an error that wraps ErrForbidden unless an address may be dialled, with every IPv4 address that it
// leads to.
func (g *Guard) judge(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if found, closed := rangeOf(addr); closed && !g.opens(found, addr) {
		return forbidden(addr.String()+" is "+found.what, found)
	}
	for _, inner := range carried(addr) {
		if found, closed := rangeOf(inner); closed && !g.opens(found, inner) {
			return forbidden(fmt.Sprintf("%s leads to %s, which is %s", addr, inner, found.what), found)
		}
	}
	return nil
}

func forbidden(why string, found closed) error {
	if found.open == never {
		return fmt.Errorf("%w: %s", ErrForbidden, why)
	}
	return fmt.Errorf("%w: %s; allow its network if that is meant", ErrForbidden, why)
}

func rangeOf(addr netip.Addr) (found closed, isClosed bool) {
	for _, one := range ranges {
		if one.network.Contains(addr) {
			return one, true
		}
	}
	if addr.Is6() && !global.Contains(addr) && !nat64.Contains(addr) {
		return reserved, true
	}
	return closed{}, false
}

// opens reports whether the options open a closed range for an address in it.
func (g *Guard) opens(found closed, addr netip.Addr) bool {
	if found.open == never {
		return false
	}
	if g.options.AllowLocal && (addr.IsLoopback() || addr.IsLinkLocalUnicast()) {
		return true
	}
	for _, network := range g.options.Allowed {
		meant := found.open == contained || network.Bits() >= found.network.Bits()
		if meant && network.Contains(addr) {
			return true
		}
	}
	return false
}

// carried are the IPv4 addresses to which translators and tunnels pass on what is sent to an IPv6 address.
func carried(addr netip.Addr) []netip.Addr {
	b := addr.As16()
	switch {
	case nat64.Contains(addr), nat64Local.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[12:16]))}
	case sixToFour.Contains(addr):
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case teredo.Contains(addr):
		// The server, and the client with its bits turned over.
		return []netip.Addr{
			netip.AddrFrom4([4]byte(b[4:8])),
			netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}),
		}
	}
	return nil
}
