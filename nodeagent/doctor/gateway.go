package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
	"github.com/ai-process/ktms/nodeagent/registry"
)

// checkGateway asks the gateway what it would say to the models that the agent would report.
func checkGateway(ctx context.Context, o Options, r *report, models []engine.Model) {
	reported, _ := o.Selection.Apply(models)
	ids := make([]string, 0, len(reported))
	for _, m := range reported {
		ids = append(ids, m.GetId())
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := o.Registry.VetModels(ctx, &ktmsv1.VetModelsRequest{NodeId: o.NodeID, Models: ids})
	if err != nil {
		trouble := registry.Explain(err)
		if trouble.Cause == registry.Away && !o.Target.TLS && speaksTLS(ctx, o) {
			trouble.Text = "the gateway at " + o.Target.Host + " speaks TLS: add --tls"
		}
		r.problem("%s", trouble.Text)
		return
	}
	r.ok("the gateway at %s accepts the node key for node %s", o.Target.Host, o.NodeID)
	checkVerdicts(o, r, models, resp.GetVerdicts())
}

// speaksTLS tries a handshake.
func speaksTLS(ctx context.Context, o Options) bool {
	// The gateway's own context may have run out.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	conn, err := o.Machine.Dial(ctx, "tcp", o.Target.Host)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	//nolint:gosec // only whether there is TLS is asked: nothing is sent, and no name is trusted
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) == nil
}

// checkVerdicts counts a model as allowed when it is under one of its names.
func checkVerdicts(o Options, r *report, models []engine.Model, verdicts []*ktmsv1.ModelVerdict) {
	allowed := 0
	var refused []engine.Model
	reasons := map[string]string{}
	for _, m := range models {
		names, yes := 0, 0
		for _, v := range verdicts {
			if !m.Is(v.GetModel()) {
				continue
			}
			names++
			if v.GetAllowed() {
				yes++
			} else if reasons[m.ID] == "" {
				reasons[m.ID] = v.GetReason()
			}
		}
		switch {
		case yes > 0:
			allowed++
		case names > 0:
			refused = append(refused, m)
		}
	}
	for _, m := range refused {
		reason := reasons[m.ID]
		if reason == "" {
			reason = "model " + m.ID + " is not permitted for this node key"
		}
		wanted := slices.Concat(o.Selection.Only, o.Selection.Judges, []string{o.Model})
		if allowed == 0 || slices.ContainsFunc(wanted, m.Is) {
			r.problem("%s: name the allowed models with --only-model, or ask for a key that allows it", reason)
		} else {
			r.note("%s, so the gateway ignores it", reason)
		}
	}
	if allowed > 0 {
		r.ok("the node key allows %d of the node's models", allowed)
	}
}

// checkEndpoint looks at the address that the gateway shall dial, and asks there if the engine answers at all.
func checkEndpoint(ctx context.Context, o Options, r *report, answers bool) {
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
			if o.Kind == engine.Ollama {
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
