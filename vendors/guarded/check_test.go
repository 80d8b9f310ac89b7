package guarded

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	long := strings.Repeat("a", maxLabel)
	name := strings.Join([]string{long, long, long, strings.Repeat("b", maxName-3*(maxLabel+1))}, ".")
	for raw, want := range map[string]string{
		"http://node.example.com":             "http://node.example.com",
		"https://node.example.com/":           "https://node.example.com/",
		"HTTPS://Node.EXAMPLE.com:8443/v1":    "https://node.example.com:8443/v1",
		"http://node.example.com:11434/v1":    "http://node.example.com:11434/v1",
		"http://ollama:11434/v1":              "http://ollama:11434/v1",
		"http://my_engine-1/v1":               "http://my_engine-1/v1",
		"http://xn--bcher-kva.example/v1":     "http://xn--bcher-kva.example/v1",
		"http://8.8.8.8:1/v1":                 "http://8.8.8.8:1/v1",
		"http://[2606:4700:4700:0::1111]/v1":  "http://[2606:4700:4700::1111]/v1",
		"http://[2606:4700::1]:65535/v1":      "http://[2606:4700::1]:65535/v1",
		"http://[::ffff:8.8.8.8]:80/v1":       "http://8.8.8.8:80/v1",
		"http://[64:ff9b::8.8.8.8]/v1":        "http://[64:ff9b::808:808]/v1",
		"http://" + name + "/v1":              "http://" + name + "/v1",
		"http://1.example.com/a%20b/c":        "http://1.example.com/a%20b/c",
		"http://0x7f.example.com/v1":          "http://0x7f.example.com/v1",
		"http://host/user@name:what/v1":       "http://host/user@name:what/v1",
		"http://localhost.example.com/v1":     "http://localhost.example.com/v1",
		"http://notlocalhost/v1":              "http://notlocalhost/v1",
		"http://169.254.169.254.nip.io/v1":    "http://169.254.169.254.nip.io/v1", // judged when it is dialled
		"http://metadata.google.internal/v1/": "http://metadata.google.internal/v1/",
	} {
		u, err := New(Options{}).Check(raw)
		if err != nil || u.String() != want {
			t.Errorf("%s: got %v, %v; want %s", raw, u, err, want)
		}
	}
}

func TestCheck_Refuses(t *testing.T) {
	for kind, raws := range map[string][]string{
		"scheme": {"", "node.example.com", "node.example.com:80/v1", "//host/v1", "ftp://host", "file:///etc/passwd", "unix:///run/x",
			"gopher://host", "javascript:alert(1)", "http:host/v1", "http:/host/v1", "http://", "http:///v1", "https:", "ws://host"},
		"userinfo": {"http://anna@host", "http://anna:hunter2@host/v1", "http://@host", "http://:@host", "http://host@10.0.0.1/v1",
			"http://8.8.8.8:80@127.0.0.1/", "http://anna:hunter2@%zz/"},
		"fragment and query": {"http://host/v1#", "http://host/v1#x", "http://host#@evil/", "http://host?", "http://host/v1?x=y"},
		"characters": {"http://host/v1\n", "http://host/\r\nX: y", "\thttp://host", " http://host", "http://host /v1", "http://ho\x00st", "http://host/\x7f",
			`http:\\host\v1`, `http://host\@evil/`, `http://8.8.8.8\.evil/`, `http://host/a\b`, "http://h\u00f6st/v1", "http://\uff11\uff12\uff17.0.0.1/",
			"http://127\u30020\u30020\u30021/", "http://\u2460\u2461\u2466.0.0.1/", "http://ho\u00adst/", "http://ho\u200dst/", "http://host/\u00e9"},
		"percent": {"http://%31%32%37.0.0.1/", "http://ho%73t/", "http://host%2eevil/", "http://[fe80::1%25eth0]/", "http://host%00/", "http://h%C3%B6st/", "http://h%EF%BC%8Ecom/"},
		"names": {"http://host./v1", "http://.host/", "http://a..b/", "http://-a.b/", "http://a-.b/", "http://xn--/", "http://a,b/", "http://a;b/",
			"http://a'b/", "http://a$b/", "http://a*b/", "http://" + strings.Repeat("a", maxLabel+1) + "/", "http://" + strings.Repeat("a.", maxName/2+1) + "b/",
			"http://host/" + strings.Repeat("x", maxURL)},
		"ports": {"http://host:", "http://host:/v1", "http://host:0/", "http://host:00/", "http://host:080/", "http://host:65536/", "http://host:99999999999/",
			"http://host:-1/", "http://host:http/", "http://host:80:80/", "http://[2606::1]:/", "http://[2606::1]x/", "http://8.8.8.8:+80/"},
		"numbers": {"http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://127.1/", "http://127.0.1/", "http://0/",
			"http://017700000001/", "http://127.0.0.0x1/", "http://127.0.0.1./", "http://0X7F.1/", "http://0x/", "http://8.8.8.08/", "http://8.8.8.8.8/",
			"http://256.1.1.1/", "http://134744072/", "http://8.8.2056/", "http://host.123/", "http://host.0xaf/", "http://1.2.3/"},
		"brackets": {"http://[8.8.8.8]/", "http://[host]/", "http://[]/", "http://[2606::1/", "http://2606::1/", "http://[2606:4700::1::2]/", "http://[v1.x]/"},
	} {
		for _, raw := range raws {
			u, err := New(Options{AllowLocal: true}).Check(raw)
			if err == nil || errors.Is(err, ErrForbidden) {
				t.Errorf("%s: %q: got %v, %v; want a refusal of its form", kind, raw, u, err)
			} else if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q: the error repeats the password: %v", raw, err)
			}
		}
	}
}

func TestCheck_JudgesAddresses(t *testing.T) {
	g := New(Options{})
	for _, text := range closedIPv4 {
		hosts := []string{text}
		for _, addr := range disguises(text) {
			hosts = append(hosts, "["+addr.String()+"]")
		}
		for _, host := range hosts {
			if u, err := g.Check("http://" + host + ":11434/v1"); !errors.Is(err, ErrForbidden) {
				t.Errorf("%s: got %v, %v; want forbidden", host, u, err)
			}
		}
	}
	for _, text := range closedIPv6 {
		if u, err := g.Check("http://[" + text + "]/v1"); !errors.Is(err, ErrForbidden) {
			t.Errorf("%s: got %v, %v; want forbidden", text, u, err)
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST", "a.localhost"} {
		for _, test := range []struct {
			options Options
			want    bool
		}{
			{Options{}, false},
			{Options{AllowLocal: true}, true},
			{Options{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}, true},
			{Options{Allowed: []netip.Prefix{netip.MustParsePrefix("::1/128")}}, true},
			{Options{Allowed: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}, false},
		} {
			if _, err := New(test.options).Check("http://" + host + ":11434"); (err == nil) != test.want || err != nil && !errors.Is(err, ErrForbidden) {
				t.Errorf("%s with %+v: got %v", host, test.options, err)
			}
		}
	}
	inside := New(Options{Allowed: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if _, err := inside.Check("http://10.10.0.15:11434/v1"); err != nil {
		t.Errorf("in an allowed network: %v", err)
	}
}

// FuzzCheck holds what passes to what Check promises, read back by the reader that the HTTP client has.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{"http://host:11434/v1", "https://[2606:4700::1]:1/a%20b", "http://8.8.8.8", "http://0x7f.1/", "http://a@b/",
		"http://[::ffff:8.8.8.8]/", "http://host//..//", `http://a\@b/`, "http://127.0.0.1.", "http://%31.1.1.1", "http://\uff11.1.1.1", "HTTP://A_b/*"} {
		f.Add(seed)
	}
	g := New(Options{})
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := g.Check(raw)
		if err != nil {
			return
		}
		text := u.String()
		again, err := g.Check(text)
		if err != nil || again.String() != text {
			t.Fatalf("%q became %q, which is %v, %v", raw, text, again, err)
		}
		given, err := url.Parse(raw)
		if err != nil {
			t.Fatalf("%q passes, but is no URL", raw)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "" {
			t.Errorf("%q passes as %#v", raw, u)
		}
		if u.Path != given.Path || u.Port() != given.Port() {
			t.Errorf("%q changed to %q", raw, text)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Errorf("%q holds what no URL holds", text)
		}
		host := u.Hostname()
		addr, err := netip.ParseAddr(host)
		if err == nil {
			if err := g.judge(addr); err != nil || addr.Is4In6() || addr.Zone() != "" {
				t.Errorf("%q passes with %v: %v", raw, addr, err)
			}
			return
		}
		if endsInNumber(host) || checkName(host) != nil || host != strings.ToLower(given.Hostname()) {
			t.Errorf("%q passes with the host %q", raw, host)
		}
	})
}
