package guarded

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// closedIPv4 are addresses that no Guard dials without being told to.
var closedIPv4 = []string{
	"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1",
	"127.255.255.254", "168.63.129.16", "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255",
	"192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1",
	"203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
}

// openIPv4 are public ones, right beside closed ranges where there are such.
var openIPv4 = []string{
	"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
	"168.63.129.15", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255",
	"192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
}

var closedIPv6 = []string{
	"::", "::1", "::2", "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::1", "64:ff9b:1:2::808:808", "100::1", "200::1", "1fff::1",
	"2001::1", "2001:1::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", "3fff:fff::1", "4000::1",
	"5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fdff::1", "fe80::1", "fe80::a9fe:a9fe",
	"febf::1", "fec0::1", "ff02::1", "ff0e::1",
}

var openIPv6 = []string{"2000::1", "2001:200::1", "2606:4700:4700::1111", "2a00:1450::1", "3ffe:ffff::1", "3fff:1000::1"}

// disguises are the IPv6 addresses at which an IPv4 address may be reached.
func disguises(text string) map[string]netip.Addr {
	b := netip.MustParseAddr(text).As4()
	tail := func(head string) netip.Addr {
		whole := netip.MustParseAddr(head).As16()
		copy(whole[12:], b[:])
		return netip.AddrFrom16(whole)
	}
	sixToFour := netip.MustParseAddr("2002::1").As16()
	copy(sixToFour[2:], b[:])
	client := netip.MustParseAddr("2001:0:101:101::").As16()
	for i := range b {
		client[12+i] = ^b[i]
	}
	server := netip.MustParseAddr("2001::fefe:fefe").As16()
	copy(server[4:], b[:])
	return map[string]netip.Addr{
		"mapped": netip.AddrFrom16(netip.AddrFrom4(b).As16()), "NAT64": tail("64:ff9b::"), "private NAT64": tail("64:ff9b:1::"),
		"6to4": netip.AddrFrom16(sixToFour), "Teredo client": netip.AddrFrom16(client), "Teredo server": netip.AddrFrom16(server),
	}
}

func TestJudge(t *testing.T) {
	g := New(Options{})
	for _, text := range slices.Concat(closedIPv4, closedIPv6) {
		if err := g.judge(netip.MustParseAddr(text)); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: got %v, want forbidden", text, err)
		}
	}
	for _, text := range slices.Concat(openIPv4, openIPv6) {
		if err := g.judge(netip.MustParseAddr(text)); err != nil {
			t.Errorf("%s is public: %v", text, err)
		}
	}
	if err := g.judge(netip.MustParseAddr("fe80::1%eth0")); !errors.Is(err, ErrForbidden) {
		t.Errorf("with a zone: got %v, want forbidden", err)
	}
}

func TestJudge_Disguises(t *testing.T) {
	g := New(Options{})
	// What a tunnel's or a private translator's range itself forbids is open here, so that its inside decides.
	tunnels := New(Options{Allowed: []netip.Prefix{nat64Local, teredo}})
	for _, text := range closedIPv4 {
		for form, addr := range disguises(text) {
			for _, g := range []*Guard{g, tunnels} {
				if err := g.judge(addr); !errors.Is(err, ErrForbidden) {
					t.Errorf("%s of %s (%s): got %v, want forbidden", form, text, addr, err)
				}
			}
		}
	}
	for _, text := range openIPv4 {
		for form, addr := range disguises(text) {
			if err := tunnels.judge(addr); err != nil {
				t.Errorf("%s of %s (%s) is public: %v", form, text, addr, err)
			}
		}
		for _, form := range []string{"mapped", "NAT64", "6to4"} {
			if err := g.judge(disguises(text)[form]); err != nil {
				t.Errorf("%s of %s is public: %v", form, text, err)
			}
		}
	}
}

func TestJudge_Allowed(t *testing.T) {
	for _, test := range []struct {
		allowed, addr string
		want          bool
	}{
		{"10.1.0.0/16", "10.1.2.3", true},
		{"10.1.2.3/16", "10.1.9.9", true},
		{"10.1.0.0/16", "::ffff:10.1.2.3", true},
		{"10.1.0.0/16", "64:ff9b::10.1.2.3", true},
		{"::ffff:10.1.0.0/112", "10.1.2.3", true},
		{"10.1.0.0/16", "10.2.0.1", false},
		{"10.1.0.0/16", "64:ff9b::10.2.0.1", false},
		{"10.1.0.0/16", "192.168.0.1", false},
		{"0.0.0.0/0", "192.168.0.1", true},
		{"0.0.0.0/0", "100.64.0.1", true},
		{"0.0.0.0/0", "203.0.113.1", true},
		{"0.0.0.0/0", "fd00::1", false},
		{"fd00:1::/48", "fd00:1::5", true},
		{"fd00:1::/48", "fd00:2::5", false},
		{"::/0", "fd00:1::5", true},
		{"::/0", "2001:db8::1", true},
		{"::/0", "200::1", true},
		{"::/0", "10.0.0.1", false},
		// Wide networks do not mean the gateway itself or its neighbours on the wire; narrow ones do.
		{"0.0.0.0/0", "127.0.0.1", false},
		{"0.0.0.0/0", "169.254.1.1", false},
		{"::/0", "::1", false},
		{"::/0", "fe80::1", false},
		{"127.0.0.0/8", "127.0.0.1", true},
		{"127.0.0.1/32", "127.0.0.1", true},
		{"127.0.0.1/32", "127.0.0.2", false},
		{"::1/128", "::1", true},
		{"169.254.0.0/16", "169.254.1.1", true},
		{"fe80::/10", "fe80::1", true},
		{"fe80::/64", "fe80::1%eth0", true},
		// Nothing opens these.
		{"169.254.169.254/32", "169.254.169.254", false},
		{"169.254.0.0/16", "::ffff:169.254.169.254", false},
		{"100.100.100.200/32", "100.100.100.200", false},
		{"fd00:ec2::254/128", "fd00:ec2::254", false},
		{"fd00::/8", "fd20:ce::254", false},
		{"fe80::/10", "fe80::a9fe:a9fe", false},
		{"0.0.0.0/32", "0.0.0.0", false},
		{"::/128", "::", false},
		{"224.0.0.0/4", "224.0.0.1", false},
		{"ff00::/8", "ff02::1", false},
		{"::/0", "::7f00:1", false},
		{"::/0", "::ffff:0:7f00:1", false},
	} {
		g := New(Options{Allowed: []netip.Prefix{netip.MustParsePrefix(test.allowed)}})
		if err := g.judge(netip.MustParseAddr(test.addr)); (err == nil) != test.want || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s with %s allowed: got %v", test.addr, test.allowed, err)
		}
	}
}

func TestJudge_AllowLocal(t *testing.T) {
	g := New(Options{AllowLocal: true})
	for _, text := range slices.Concat(closedIPv4, closedIPv6, []string{"169.254.169.254", "fe80::a9fe:a9fe", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1"}) {
		addr := netip.MustParseAddr(text)
		metadata := slices.Contains([]string{"169.254.169.253", "169.254.169.254", "169.254.170.2", "169.254.170.23", "fe80::a9fe:a9fe"}, text)
		want := addr.Unmap().IsLoopback() || text == "64:ff9b::127.0.0.1" || addr.IsLinkLocalUnicast() && !metadata
		if err := g.judge(addr); (err == nil) != want {
			t.Errorf("%s: got %v, want it open: %t", text, err, want)
		}
	}
}

// TestRanges_FirstMatchIsTheClosest: a range that stood behind a wider one would never be found.
func TestRanges_FirstMatchIsTheClosest(t *testing.T) {
	for i, one := range ranges {
		if one.network != one.network.Masked() || one.what == "" {
			t.Errorf("%v is not written as a network, or says nothing", one)
		}
		for _, earlier := range ranges[:i] {
			if earlier.network.Overlaps(one.network) && earlier.network.Bits() <= one.network.Bits() {
				t.Errorf("%v hides %v", earlier.network, one.network)
			}
		}
	}
}

func ExampleGuard_Check() {
	g := New(Options{})
	for _, endpoint := range []string{"https://Node.Example.com/v1", "http://10.0.0.7:11434/v1", "http://169.254.169.254/latest"} {
		u, err := g.Check(endpoint)
		fmt.Println(u, err)
	}
	// Output:
	// https://node.example.com/v1 <nil>
	// <nil> address not allowed: 10.0.0.7 is private; allow its network if that is meant
	// <nil> address not allowed: 169.254.169.254 is a cloud's metadata service
}
