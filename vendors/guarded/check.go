package guarded

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const (
	// maxURL is the longest endpoint, in bytes: a name of full length, a port and a long path.
	maxURL = 2048
	// maxName and maxLabel are those of the DNS.
	maxName  = 253
	maxLabel = 63
)

// Check reads the base URL of an endpoint when it is registered, and returns it with its host in one spelling. It takes
// http and https with a name or a plain IP address, an optional port and an optional path, and nothing that two readers
// of URLs could take for different hosts.
//
// It resolves nothing: what a name stands for is judged at every dial, and by Resolve. An address that may not be
// dialled is an error that wraps ErrForbidden. No error repeats the URL, which may have a password in it.
func (g *Guard) Check(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, fmt.Errorf("the endpoint has %d bytes, more than %d", len(raw), maxURL)
	}
	if strings.IndexFunc(raw, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) >= 0 {
		return nil, errors.New("the endpoint has blanks, control characters, backslashes or letters beyond ASCII; write an international name in its xn-- form")
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Opaque != "" || u.Host == "" {
		return nil, errors.New("the endpoint is not a URL such as http://host:11434/v1 or https://host/v1")
	}
	_, rest, _ := strings.Cut(raw, "://")
	authority, _, _ := strings.Cut(rest, "/")
	switch {
	case u.User != nil || strings.Contains(authority, "@"):
		return nil, errors.New("the endpoint has a user or a password in it; give the engine's token apart from it")
	case strings.Contains(raw, "#"):
		return nil, errors.New("the endpoint has a fragment (#…), which is never sent")
	case strings.Contains(raw, "?"):
		return nil, errors.New("the endpoint has a query (?…), but paths are appended to it")
	}
	port, err := checkPort(u)
	if err != nil {
		return nil, err
	}
	host, err := g.checkHost(u)
	if err != nil {
		return nil, err
	}
	u.Host = host + port
	return u, nil
}

// checkPort returns ":port", or "" where the scheme's own is meant.
func checkPort(u *url.URL) (string, error) {
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return "", errors.New("the endpoint has a colon after its host, but no port")
		}
		return "", nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || port[0] == '0' {
		return "", fmt.Errorf("the endpoint's port %q is not a number from 1 to 65535", port)
	}
	return ":" + port, nil
}

// checkHost returns the host as it stands in a URL.
func (g *Guard) checkHost(u *url.URL) (string, error) {
	host := strings.ToLower(u.Hostname())
	bracketed := strings.HasPrefix(u.Host, "[")
	if bracketed || endsInNumber(host) {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" || addr.Is4() == bracketed {
			return "", fmt.Errorf("the endpoint's host %q is not an IP address in its usual form, 192.0.2.1 or [2001:db8::1]", host)
		}
		if err := g.judge(addr); err != nil {
			return "", err
		}
		if addr = addr.Unmap(); addr.Is4() {
			return addr.String(), nil
		}
		return "[" + addr.String() + "]", nil
	}
	if err := checkName(host); err != nil {
		return "", err
	}
	if host == localhost || strings.HasSuffix(host, "."+localhost) {
		if err := g.judge(netip.AddrFrom4([4]byte{127, 0, 0, 1})); err != nil && g.judge(netip.IPv6Loopback()) != nil {
			return "", err
		}
	}
	return host, nil
}

// localhost and all names below it are loopback everywhere (RFC 6761).
const localhost = "localhost"

// checkName takes labels of letters, digits and hyphens, and of underscores, which container networks use.
func checkName(host string) error {
	if len(host) > maxName {
		return fmt.Errorf("the endpoint's host has %d characters, more than %d", len(host), maxName)
	}
	for label := range strings.SplitSeq(host, ".") {
		switch {
		case label == "":
			return fmt.Errorf("the endpoint's host %q has an empty part; leave a dot at its end out", host)
		case len(label) > maxLabel:
			return fmt.Errorf("the endpoint's host has a part with %d characters, more than %d", len(label), maxLabel)
		case label[0] == '-' || label[len(label)-1] == '-' || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
			return fmt.Errorf("the endpoint's host %q is not a name of letters, digits and hyphens", host)
		}
	}
	return nil
}

// endsInNumber reports whether a host's last part is a number, decimal or hexadecimal. Such a host is an IPv4 address to
// many readers, some of which take 2130706433, 0x7f.1 and 0177.0.0.1 for 127.0.0.1.
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if digits, hex := strings.CutPrefix(last, "0x"); hex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
