package doctor

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
	"github.com/ai-process/ktms/nodeagent/registry"
)

// checkGateway asks the gateway what it would say to the models and the endpoint that the agent would report. It returns
// nil where the gateway did not answer.
func checkGateway(ctx context.Context, o Options, r *report, models []engine.Model) *ktmsv1.VetModelsResponse {
	reported, _ := o.Selection.Apply(models)
	ids := make([]string, 0, len(reported))
	for _, m := range reported {
		ids = append(ids, m.GetId())
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := o.Registry.VetModels(ctx, &ktmsv1.VetModelsRequest{NodeId: o.NodeID, Models: ids, Endpoint: o.Endpoint})
	if err != nil {
		trouble := registry.Explain(err)
		if trouble.Cause == registry.Away && !o.Target.TLS && speaksTLS(ctx, o) {
			trouble.Text = "the gateway at " + o.Target.Host + " speaks TLS: add --tls"
		}
		r.problem("%s", trouble.Text)
		return nil
	}
	r.ok("the gateway at %s accepts the node key for node %s", o.Target.Host, o.NodeID)
	checkVerdicts(o, r, models, resp.GetVerdicts())
	checkCatalogue(o, r, models, resp.GetVerdicts())
	return resp
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
		if allowed == 0 || wanted(o, m) {
			r.problem("%s: name the allowed models with --only-model, or ask for a key that allows it", reason)
		} else {
			r.note("%s, so the gateway ignores it", reason)
		}
	}
	if allowed > 0 {
		r.ok("the node key allows %d of the node's models", allowed)
	}
}

// wanted reports whether the operator named a model.
func wanted(o Options, m engine.Model) bool {
	return slices.ContainsFunc(slices.Concat(o.Selection.Only, o.Selection.Judges, []string{o.Model}), m.Is)
}

// checkCatalogue looks for models that the gateway takes and no request reaches. One name of a model is enough.
func checkCatalogue(o Options, r *report, models []engine.Model, verdicts []*ktmsv1.ModelVerdict) {
	reached := 0
	var lost []engine.Model
	names := map[string][]string{}
	for _, m := range models {
		found := false
		for _, v := range verdicts {
			if m.Is(v.GetModel()) && v.GetAllowed() {
				names[m.ID] = append(names[m.ID], v.GetModel())
				found = found || v.GetInCatalogue()
			}
		}
		switch {
		case found:
			reached++
		case len(names[m.ID]) > 0:
			lost = append(lost, m)
		}
	}
	for _, m := range lost {
		text := "no request reaches the model " + m.ID + ", since the catalogue lacks it: an administrator adds it with UpsertModel, " +
			"vendor local, under exactly the id " + strings.Join(names[m.ID], " or ")
		if slices.ContainsFunc(o.Selection.Only, m.Is) {
			text += ", as --only-model spells it"
		}
		if reached == 0 || wanted(o, m) {
			r.problem("%s", text)
		} else {
			r.note("%s", text)
		}
	}
	if reached > 0 {
		r.ok("the catalogue has %d of the node's models", reached)
	}
}
