package memory

import "github.com/ai-process/ktms/pool"

// circuit keeps requests away from a node that fails.
type circuit struct {
	failures int64
	open     bool
	// opened is when it opened last, in microseconds.
	opened int64
	// turn counts the changes, so that what began before one is no judgement of what came after it.
	turn int64
	// probe is the lease that tries an open circuit; "" = none does.
	probe pool.ID
}

// admits reports whether a request may go to the node, and whether it is the one that tries it.
func (c *circuit) admits(now int64) (admitted, trial bool) {
	switch {
	case !c.open:
		return true, false
	case !c.cooled(now) || c.probe != "":
		return false, false
	}
	return true, true
}

// cooled reports whether an open circuit may be tried. One that is yet to open opened before the clock was set back.
func (c *circuit) cooled(now int64) bool {
	return max(now-c.opened, c.opened-now) >= pool.BreakCooldown.Microseconds()
}

// endProbe lets the next one try, if this lease did.
func (c *circuit) endProbe(id pool.ID) {
	if c.probe == id {
		c.probe = ""
	}
}

// judge counts an outcome.
func (c *circuit) judge(lease pool.Lease, outcome pool.Outcome, now int64) {
	c.endProbe(lease.ID)
	if lease.Turn != c.turn {
		return
	}
	switch outcome {
	case pool.Succeeded:
		c.failures = 0
		if c.open {
			c.open = false
			c.turn++
		}
	case pool.Failed:
		c.failures++
		if c.failures >= pool.BreakAfter || lease.Trial {
			c.open, c.opened = true, now
			c.turn++
		}
	}
}

// restart closes it and begins another turn.
func (c *circuit) restart() { *c = circuit{turn: c.turn + 1} }
