package redis

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/rueidis"

	"github.com/ai-process/ktms/pool"
)

// guesses is how often a script is asked when it was given other windows than the present ones. The first answer tells
// the time, so a third guess is for a window that ended on the way.
const guesses = 3

// The first number of every reply, as in counters.lua.
const (
	outcomeRefused = iota
	outcomeDone
	outcomeElsewhen
	outcomeAgain
)

var (
	errResting = fmt.Errorf("%w: Redis did not answer lately and is left alone for a moment", pool.ErrUnavailable)
	errReply   = errors.New("the reply is not one of the script's")
	errWindow  = errors.New("the window keeps ending before the question arrives: it is shorter than the way")
)

//go:embed clock.lua
var clockLua string

//go:embed counters.lua
var countersLua string

//go:embed admit.lua
var admitLua string

//go:embed settle.lua
var settleLua string

//go:embed renew.lua
var renewLua string

//go:embed read.lua
var readLua string

//go:embed nodes.lua
var nodesLua string

//go:embed choose.lua
var chooseLua string

//go:embed abandon.lua
var abandonLua string

//go:embed begun.lua
var begunLua string

//go:embed noderenew.lua
var nodeRenewLua string

//go:embed release.lua
var releaseLua string

//go:embed loads.lua
var loadsLua string

//go:embed holders.lua
var holdersLua string

//go:embed registry.lua
var registryLua string

//go:embed register.lua
var registerLua string

//go:embed beat.lua
var beatLua string

//go:embed remove.lua
var removeLua string

//go:embed drain.lua
var drainLua string

//go:embed reseal.lua
var resealLua string

// scripts are sent by their hash, and in full to a Redis that does not know them.
type scripts struct {
	admit, settle, renew, read                 *rueidis.Lua
	choose, abandon, begun, nodeRenew, release *rueidis.Lua
	loads, holders                             *rueidis.Lua
	now                                        *rueidis.Lua
	register, beat, remove, drain, reseal      *rueidis.Lua
}

func newScripts() scripts {
	counters := func(text string) *rueidis.Lua { return rueidis.NewLuaScript(clockLua + countersLua + text) }
	nodes := func(text string) *rueidis.Lua { return rueidis.NewLuaScript(clockLua + nodesLua + text) }
	registry := func(text string) *rueidis.Lua { return nodes(registryLua + text) }
	return scripts{
		admit: counters(admitLua), settle: counters(settleLua), renew: counters(renewLua), read: counters(readLua),
		choose: nodes(chooseLua), abandon: nodes(abandonLua), begun: nodes(begunLua), nodeRenew: nodes(nodeRenewLua), release: nodes(releaseLua),
		loads: nodes(loadsLua), holders: nodes(holdersLua),
		now:      rueidis.NewLuaScript(clockLua + "return {DONE, now}"),
		register: registry(registerLua), beat: registry(beatLua), remove: registry(removeLua), drain: registry(drainLua),
		reseal: registry(resealLua),
	}
}

// reply is what a script returned.
type reply struct {
	outcome int64
	// now is in microseconds since 1970.
	now int64
	// before is what was there of each charge, or what else the script says in numbers.
	before []int64
	// rest begins with the first thing that is no number.
	rest []rueidis.RedisMessage
}

// readReply takes a script's answer apart.
func readReply(result rueidis.RedisResult) (reply, error) {
	all, err := result.ToArray()
	if err != nil {
		return reply{}, err
	}
	numbers := make([]int64, 0, len(all))
	for i := range all {
		if !all[i].IsInt64() {
			break
		}
		n, err := all[i].AsInt64()
		if err != nil {
			return reply{}, err
		}
		numbers = append(numbers, n)
	}
	if len(numbers) < 2 {
		return reply{}, errReply
	}
	return reply{outcome: numbers[0], now: numbers[1], before: numbers[2:], rest: all[len(numbers):]}, nil
}

// answer is what became of a question.
type answer struct {
	reply reply
	err   error
}

// run asks a script, in one round trip unless the windows were guessed wrong. What it is asked is written anew for each
// guess of the time. Errors wrap ErrUnavailable, or are the context's own.
func (c *Client) run(ctx context.Context, operation string, script *rueidis.Lua, write func(r *request, now int64)) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	let, may := c.guard.enter()
	if !may {
		return reply{}, errResting
	}
	let.began = c.clock.guess()
	// The call is not the caller's: its end would break a connection that others wait for, too.
	trip, cancel := context.WithTimeout(c.life, c.timeout)
	r := c.requests.get(c.keys)
	for guess := 0; guess < guesses; {
		r.begin()
		write(r, c.clock.guess())
		answers := c.ask(trip, script, r)
		var got answer
		select {
		case got = <-answers:
		case <-trip.Done():
			// rueidis waits without a limit in places, such as for room in the queue of a connection that hangs.
			got.err = trip.Err()
		case <-ctx.Done():
			// Whether Redis is well is seen all the same.
			c.spawn(func() {
				defer cancel()
				select {
				case got := <-answers:
					_ = c.judge(operation, let, got.err)
				case <-trip.Done():
					_ = c.judge(operation, let, trip.Err())
				}
			})
			return reply{}, ctx.Err()
		}
		if got.err != nil {
			err := c.judge(operation, let, got.err)
			cancel()
			return reply{}, err
		}
		c.noteTime(got.reply.now)
		switch got.reply.outcome {
		case outcomeElsewhen:
			guess++
		case outcomeAgain: // each time some hundreds of leases are gone
		default:
			cancel()
			c.requests.put(r)
			return got.reply, c.judge(operation, let, nil)
		}
	}
	cancel()
	return reply{}, c.judge(operation, let, errWindow)
}

// noteTime takes what Redis said that the time is.
func (c *Client) noteTime(now int64) { c.away.corrected(c.clock.learn(now), now) }

// ask sends a question from a goroutine of its own, so that nobody waits longer for the answer than they want to.
func (c *Client) ask(ctx context.Context, script *rueidis.Lua, r *request) <-chan answer {
	answers := make(chan answer, 1)
	c.spawn(func() {
		client, err := c.connected(ctx)
		if err != nil {
			answers <- answer{err: err}
			return
		}
		got, err := readReply(script.Exec(ctx, client, r.keys.strings(), r.args.strings()))
		answers <- answer{reply: got, err: err}
	})
	return answers
}

// judge draws the consequences of how a call ended, and returns its error as the caller may see it.
func (c *Client) judge(operation string, let pass, err error) error {
	if c.life.Err() != nil && err != nil {
		return fmt.Errorf("%w: %s: %w", pool.ErrUnavailable, operation, errClosed)
	}
	var seen error
	if err == nil {
		c.away.answered(c.clock.guess())
	} else {
		c.away.failed(let.began)
		seen = fmt.Errorf("%w: %s: %s", pool.ErrUnavailable, operation, c.describe(err))
		c.failed(operation)
	}
	switch c.guard.leave(let, err) {
	case wentDown:
		c.log.Warn("Redis does not answer; it is tried again every few seconds",
			slog.String("every", rest.String()), slog.String("error", c.describe(err)))
		c.reconnect(err)
	case stayedDown:
		c.reconnect(err)
	case cameBack:
		c.log.Info("Redis answers again")
	}
	return seen
}

// describe says what went wrong without what must not be said.
func (c *Client) describe(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", c.timeout)
	}
	text := err.Error()
	for _, secret := range c.secrets {
		text = strings.ReplaceAll(text, secret, "[secret]")
	}
	return text
}
