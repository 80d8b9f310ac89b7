package doctor

import (
	"context"
	"strings"
)

const (
	// quickService gives the addresses of quick tunnels out.
	quickService = "api.trycloudflare.com:443"
)

// edges are where tunnels go, and one is enough. The port is seldom used for anything else, so firewalls often block it.
var edges = []string{"region1.v2.argotunnel.com:7844", "region2.v2.argotunnel.com:7844"}

// checkTunnel looks for what keeps a tunnel down, without opening one.
func checkTunnel(ctx context.Context, o Options, r *report) {
	if o.Cloudflared == "" {
		return
	}
	version, err := o.Machine.Run(ctx, o.Cloudflared, "--version")
	if err != nil {
		r.problem("%s does not run (%v): install it, or name it with --cloudflared-path", o.Cloudflared, err)
	} else {
		first, _, _ := strings.Cut(strings.TrimSpace(string(version)), "\n")
		r.ok("%s", first)
	}
	if err := connects(ctx, o, quickService); err != nil {
		r.problem("the tunnel cannot come up: %s gives tunnels their address and cannot be reached (%v)", quickService, err)
		return
	}
	var last error
	for _, edge := range edges {
		if last = connects(ctx, o, edge); last == nil {
			r.ok("the tunnel's edge answers at %s", edge)
			return
		}
	}
	r.problem("the tunnel cannot come up: outbound port 7844 is blocked (%v). Allow TCP and UDP to it in the firewall", last)
}

func connects(ctx context.Context, o Options, address string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := o.Machine.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}
