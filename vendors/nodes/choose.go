package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/vendors"
)

// chosen is a slot on a node.
type chosen struct {
	node  *pool.Node
	lease pool.Lease
	warm  bool
}

// choose takes a slot, and waits for one as long as the request has patience. Waiting that cannot be enough is not begun:
// by Little's law the line ahead, our own and the engines', tells how long it takes.
func (v *Vendor) choose(ctx context.Context, t vendors.Target, w want) (*chosen, *vendors.Error) {
	id := t.Visit.ID
	if id == "" {
		id = uuid.Must(uuid.NewV7()).String()
	}
	asked := pool.Choosing{ID: pool.ID(id), TTL: v.options.Lease, Model: w.model, Prompt: w.prompt, Policy: v.options.Policy}
	end := time.Now().Add(t.Visit.Patience)
	var place *turn
	hashed := false
	for {
		s, err := v.look(ctx, w.model)
		if err != nil {
			return nil, v.stateless(ctx, err)
		}
		candidates, verdicts := selection.Prepare(s.nodes, selection.Query{Model: w.model, PromptTokens: w.prompt,
			MaxOutputTokens: w.output, Tried: t.Visit.Tried})
		if len(candidates) == 0 {
			return nil, nobody(verdicts, w, s)
		}
		if !hashed && len(s.fleet.Nodes) > 1 && w.prefixes != nil && v.options.Policy.Affinity > 0 && !v.options.Policy.Plain {
			asked.Prefixes, hashed = w.prefixes(), true
		}
		got, occupied, err := v.ask(ctx, asked, s, candidates)
		if err != nil {
			return nil, v.stateless(ctx, err)
		}
		if got != nil {
			return got, nil
		}
		if place == nil {
			place = v.lines.join(w.model)
			defer place.leave()
		}
		ahead, service := place.standing()
		expected := expectation(s, candidates, occupied, ahead, service)
		left := time.Until(end)
		if left <= 0 || expected > left.Seconds() {
			return nil, busy(expected)
		}
		timer := time.NewTimer(min(nap(ahead), left))
		select {
		case <-timer.C:
		case <-place.wake:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil, departed(ctx)
		}
	}
}

// ask puts the choice to the pool: one round trip, or, of a large fleet, one more to learn who holds the prompt, and more
// where the first are full.
func (v *Vendor) ask(ctx context.Context, asked pool.Choosing, s *snapshot, candidates []selection.Candidate) (*chosen, int64, error) {
	var holds []bool
	if len(candidates) > selection.NarrowFrom && len(asked.Prefixes) > 0 {
		generations := make([]string, 0, len(candidates))
		for _, c := range candidates {
			generations = append(generations, s.node(c.Node).Generation)
		}
		var err error
		if holds, err = v.options.Nodes.Holders(ctx, asked.Prefixes, generations); err != nil {
			return nil, 0, err
		}
	}
	first, rest := selection.Narrow(candidates, holds)
	occupied := int64(0)
	for len(first) > 0 {
		asked.Contenders = s.contenders(first)
		// A caller that leaves now must not leave behind a slot that is being taken. The pool has a time limit of its own.
		answer, err := v.options.Nodes.Choose(context.WithoutCancel(ctx), asked)
		if err != nil {
			return nil, 0, err
		}
		if answer.Lease != nil {
			n := s.node(answer.Lease.Node)
			model := only(n.Models, asked.Model)
			return &chosen{node: n, lease: *answer.Lease, warm: len(model) > 0 && model[0].Warm}, 0, nil
		}
		occupied += answer.Occupied
		next := min(len(rest), selection.MaxCandidates)
		first, rest = rest[:next], rest[next:]
	}
	return nil, occupied, nil
}

// expectation is how long the next in line waits for a slot, in seconds, at the machines where it comes first. Those whose
// engines have longer lines of their own do not make anybody wait for them, and whatever one of them reports spoils no
// other's.
func expectation(s *snapshot, candidates []selection.Candidate, occupied, ahead int64, service float64) float64 {
	lines := make([]selection.Line, 0, len(candidates)) // one machine's each
	all := selection.Line{Occupied: occupied, Waiting: ahead, ServiceSeconds: service}
	for _, c := range candidates {
		own := selection.Line{Slots: min(c.Slots, c.Max), Waiting: foreignWaiting(s.node(c.Node))}
		lines = append(lines, own)
		all.Slots += own.Slots
		all.Waiting += own.Waiting
	}
	best := all.Wait()
	slices.SortFunc(lines, func(a, b selection.Line) int { return cmp.Compare(a.Waiting*b.Slots, b.Waiting*a.Slots) })
	some := selection.Line{Waiting: ahead, ServiceSeconds: service}
	for _, own := range lines {
		some.Slots += own.Slots
		some.Waiting += own.Waiting
		some.Occupied = some.Slots // or the choice would have found one that is free
		best = min(best, some.Wait())
	}
	return best
}

// foreignWaiting is what waits in a node's engine beyond our leases and beyond what counts as occupying it.
func foreignWaiting(n *pool.Node) int64 {
	if n.Waiting == nil {
		return 0
	}
	active := int64(0)
	if n.Active != nil {
		active = *n.Active
	}
	return max(active+*n.Waiting-n.Counted, 0) - max(active-n.Counted, 0)
}

// maxWait is the longest wait that a refusal names: what is expected beyond it is no more than a guess.
const maxWait = 10 * time.Minute

// busy is the error of a request for which no slot is free in time.
func busy(expected float64) *vendors.Error {
	e := unsent(vendors.Busy, "every machine that could serve it is busy")
	if expected > 0 {
		e.RetryAfter = time.Duration(math.Ceil(math.Min(expected, maxWait.Seconds()))) * time.Second
	}
	return e
}

// nobody is the error of a request that no machine could serve, even if all were free.
func nobody(verdicts []selection.Verdict, w want, s *snapshot) *vendors.Error {
	// One that would be long enough may be back soon, whatever keeps it away; a shorter prompt is not asked for then.
	longest, fits := int64(0), false
	for i, verdict := range verdicts {
		if verdict == selection.NoModel || verdict == selection.NotAllowed {
			continue
		}
		for _, m := range only(s.fleet.Nodes[i].Models, w.model) {
			longest = max(longest, m.Context)
			fits = fits || m.Context == 0 || w.prompt <= m.Context-w.output
		}
	}
	if longest > 0 && !fits {
		return unsent(vendors.Overflow, tooLong(longest, w))
	}
	if slices.Contains(verdicts, selection.WasTried) {
		return unsent(vendors.Busy, "every machine that could serve it has failed")
	}
	return unsent(vendors.Busy, absent(verdicts))
}

// stateless is the error of a request while nothing is known of the nodes: nobody is sent to them then.
func (v *Vendor) stateless(ctx context.Context, err error) *vendors.Error {
	if ctx.Err() != nil {
		return departed(ctx)
	}
	e := unsent(vendors.Busy, unknownState)
	e.Err = err
	return e
}

// departed is the error of a request whose caller left before anything was sent, or whose time was over in the line.
func departed(ctx context.Context) *vendors.Error {
	if cause := context.Cause(ctx); errors.Is(cause, vendors.ErrSilent) {
		e := busy(0)
		e.Err = cause
		return e
	}
	return &vendors.Error{Kind: vendors.Canceled, Vendor: vendors.Local, Unsent: true, Err: context.Cause(ctx)}
}

// unsent is the error of a request that went to no machine.
func unsent(kind vendors.Kind, message string) *vendors.Error {
	return &vendors.Error{Kind: kind, Vendor: vendors.Local, Unsent: true, Message: message}
}

func tooLong(longest int64, w want) string {
	return fmt.Sprintf("prompt and answer need about %d tokens, the machines take %d at most", w.prompt+w.output, longest)
}
