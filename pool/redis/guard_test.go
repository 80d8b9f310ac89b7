package redis

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// guarded is a guard with the clock of a test.
type guarded struct {
	*testing.T
	*guard
	now time.Time
}

func newGuarded(t *testing.T) *guarded {
	g := &guarded{T: t, now: time.Unix(0, 0)}
	g.guard = newGuard(func() time.Time { return g.now })
	return g
}

var errSome = errors.New("some failure")

// call makes a call that has to be let through.
func (g *guarded) call(err error) change {
	g.Helper()
	return g.leave(g.mayEnter(), err)
}

func (g *guarded) mayEnter() pass {
	g.Helper()
	let, may := g.enter()
	if !may {
		g.Fatal("a call was kept away")
	}
	return let
}

func (g *guarded) mayNotEnter() {
	g.Helper()
	if _, may := g.enter(); may {
		g.Fatal("a call was let through")
	}
}

func (g *guarded) want(got, want change) {
	g.Helper()
	if got != want {
		g.Fatalf("change %d, want %d", got, want)
	}
}

// down fails until calls are kept away.
func (g *guarded) down() {
	g.Helper()
	g.want(g.call(errSome), unchanged)
	g.want(g.call(errSome), unchanged)
	g.want(g.call(errSome), wentDown)
}

func TestGuardRestsAfterThreeFailuresInARow(t *testing.T) {
	g := newGuarded(t)
	for range 10 {
		g.want(g.call(errSome), unchanged)
		g.want(g.call(errSome), unchanged)
		g.want(g.call(nil), unchanged)
	}
	g.down()
	g.mayNotEnter()
	g.now = g.now.Add(rest - 1)
	g.mayNotEnter()
}

func TestGuardLetsOneCallProbe(t *testing.T) {
	g := newGuarded(t)
	g.down()
	g.now = g.now.Add(rest)
	probe := g.mayEnter()
	g.mayNotEnter()
	g.want(g.leave(probe, errSome), stayedDown)
	g.mayNotEnter()
	g.now = g.now.Add(rest - 1)
	g.mayNotEnter()
	g.now = g.now.Add(1)
	g.want(g.call(nil), cameBack)
	// It takes three failures again.
	g.want(g.call(errSome), unchanged)
	g.want(g.call(errSome), unchanged)
	g.want(g.call(errSome), wentDown)
}

func TestGuardIgnoresCallsFromBefore(t *testing.T) {
	g := newGuarded(t)
	var late []pass
	for range 10 {
		late = append(late, g.mayEnter())
	}
	g.down()
	g.want(g.leave(late[0], nil), unchanged)
	g.mayNotEnter() // that one answered after all is no sign that the next one would
	g.want(g.leave(late[1], errSome), unchanged)
	g.now = g.now.Add(rest)
	probe := g.mayEnter()
	g.want(g.leave(late[2], nil), unchanged)
	g.want(g.leave(late[3], errSome), unchanged)
	g.mayNotEnter() // the probe is still under way
	g.want(g.leave(probe, nil), cameBack)
	for _, let := range late[4:] {
		g.want(g.leave(let, errSome), unchanged)
	}
	g.mayEnter()
}

func TestGuardCountsOneBreakOnce(t *testing.T) {
	g := newGuarded(t)
	underWay := func() (all []pass) {
		for range 10 {
			all = append(all, g.mayEnter())
		}
		return all
	}
	for range restAfter - 1 {
		for _, let := range underWay() {
			g.want(g.leave(let, errSome), unchanged)
		}
	}
	late := underWay()
	g.want(g.call(nil), unchanged)
	for _, let := range late {
		g.want(g.leave(let, errSome), unchanged)
	}
	// Those that got no answer each waited for one.
	all := underWay()
	g.want(g.leave(all[0], context.DeadlineExceeded), unchanged)
	g.want(g.leave(all[1], fmt.Errorf("read: %w", context.DeadlineExceeded)), wentDown)
}
