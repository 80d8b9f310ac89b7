package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
)

// checkEndpoint looks at the address that the gateway shall dial, and asks there if the engine answers at all. Without the
// gateway's word it says what the gateway might refuse.
func checkEndpoint(ctx context.Context, o Options, r *report, vetted *ktmsv1.VetModelsResponse, answers bool) {
	if o.Endpoint == "" {
		return
	}
	endpoint, err := url.Parse(o.Endpoint)
	if err != nil {
		r.problem("--endpoint is no URL: %v", err)
		return
	}
	gateway, _, _ := net.SplitHostPort(o.Target.Host)
	switch {
	case isLoopback(endpoint.Hostname()) && !isLoopback(gateway):
		r.problem("the gateway would dial %s, which is the gateway's own machine: give the address of this one with --endpoint, or use --expose=cloudflared", o.Endpoint)
		return
	case vetted.GetEndpointProblem() != "":
		r.problem("the gateway would refuse the endpoint %s: %s", o.Endpoint, vetted.GetEndpointProblem())
	case vetted != nil:
		r.ok("the gateway takes the endpoint %s", o.Endpoint)
	case isLoopback(endpoint.Hostname()):
		r.note("the endpoint is a loopback address, which the gateway takes only with NODE_ALLOW_LOCALHOST_ENDPOINTS=true")
	case isPrivate(endpoint.Hostname()):
		r.note("the endpoint is a private address, so the node key's allowed_cidrs must contain it")
	}
	if o.Reachable == nil || !answers {
		return
	}
	if _, err := o.Reachable.Models(ctx); err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			hint := "let the engine listen on it"
			switch {
			case isLoopback(endpoint.Hostname()):
				hint = "give the address of the engine, like " + o.EngineURL
			case o.Kind == engine.Ollama:
				hint = "set OLLAMA_HOST=0.0.0.0, since Ollama listens on this machine alone"
			}
			r.problem("nothing answers at the endpoint %s: %s", o.Endpoint, hint)
			return
		}
		r.note("the endpoint %s does not answer from here (%v), and may from the gateway", o.Endpoint, err)
		return
	}
	r.ok("the engine answers at the endpoint %s", o.Endpoint)
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || (err == nil && addr.Unmap().IsLoopback())
}

func isPrivate(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsPrivate()
}
