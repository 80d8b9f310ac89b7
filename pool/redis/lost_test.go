package redis

import (
	"strconv"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// losing is a window of a Redis that loses keys.
type losing struct {
	*holder
	client *Client
	server *pooltest.RedisServer
	clock  *pooltest.Clock
	charge pool.Charge
	start  int64
}

func newLosing(t *testing.T) *losing {
	l := &losing{
		server: pooltest.StartRedis(t),
		clock:  pooltest.NewClock(time.Date(2027, 3, 4, 5, 6, 7, 8000, time.UTC)),
		charge: pool.Charge{Key: "a", Window: pool.Window{Limit: 100, Span: pool.Day}},
	}
	l.client = open(t, Options{Addr: l.server.Addr, Timeout: patience, Now: l.clock.Now})
	l.holder = &holder{T: t, Meter: l.client.Meter()}
	start, _ := pool.Day.At(l.clock.Now())
	l.start = start.UnixMicro()
	return l
}

func (l *losing) book(amount int64) (pool.ID, []pool.Booking) {
	l.Helper()
	charge := l.charge
	charge.Amount = amount
	return l.admit(time.Minute, charge)
}

func (l *losing) sums() string   { return string(l.client.keys.sums(nil, "a", l.start)) }
func (l *losing) leases() string { return string(l.client.keys.leases(nil, "a", l.start)) }

func (l *losing) lose(key string) {
	l.Helper()
	if answer := tell(l.T, l.server.Addr, "DEL", key); answer != "1" {
		l.Fatalf("%s of the key %s", answer, key)
	}
}

// want compares the use, and holds that every key that is there has a life.
func (l *losing) want(settled, reserved int64) {
	l.Helper()
	standings, err := l.Read(l.Context(), []pool.Charge{l.charge})
	if err != nil || standings[0].Settled != settled || standings[0].Reserved != reserved {
		l.Fatalf("%+v, %v; want %d settled and %d reserved", standings, err, settled, reserved)
	}
	for key, life := range lives(l.T, l.server.Addr) {
		if life < 0 {
			l.Errorf("%s lives for ever", key)
		}
	}
}

// TestLostLeases evicts the leases, without which nothing is reserved.
func TestLostLeases(t *testing.T) {
	l := newLosing(t)
	old, ofOld := l.book(60)
	l.lose(l.leases())
	l.want(0, 0)
	for range 20 { // always one call in flight
		l.book(1)
		l.clock.Advance(40 * time.Second)
		l.want(0, 1)
	}
	id, bookings := l.book(90)
	l.settle(old, ofOld, 5) // which holds nothing any more
	l.want(5, 91)
	l.settle(id, bookings, 80)
	l.want(85, 1)
	l.clock.Advance(time.Minute)
	l.want(85, 0)
}

// TestLostSums evicts the sums, with which the reservations are gone, too.
func TestLostSums(t *testing.T) {
	l := newLosing(t)
	old, ofOld := l.book(60)
	l.book(20)
	l.lose(l.sums())
	l.want(0, 0)
	id, bookings := l.book(70)
	l.want(0, 70)
	l.settle(old, ofOld, 5)
	l.want(5, 70)
	l.clock.Advance(time.Minute)
	l.want(5, 0)
	l.settle(id, bookings, 65)
	l.want(70, 0)

	old, ofOld = l.book(20)
	l.book(10)
	l.lose(l.sums())
	l.settle(old, ofOld, 15) // the first to find it
	l.want(15, 0)
	id, bookings = l.book(85)
	if err := l.Renew(t.Context(), []pool.Renewal{{ID: id, Bookings: bookings}}, time.Hour); err != nil {
		t.Fatal(err)
	}
	l.clock.Advance(time.Minute) // after which the lease of 10 would be over
	l.want(15, 85)
	l.clock.Advance(time.Hour)
	l.want(15, 0)
}

// TestSpoiltSums has sums that say less or more than the leases do, as somebody else may have written them. Nothing gets
// negative, nor stays reserved without a lease.
func TestSpoiltSums(t *testing.T) {
	for _, reserved := range []int64{1, 75} {
		l := newLosing(t)
		spoil := func() { tell(t, l.server.Addr, "HSET", l.sums(), "r", strconv.FormatInt(reserved, 10)) }
		l.book(10)
		id, bookings := l.book(20)
		spoil()
		l.settle(id, bookings, 0)
		l.want(0, max(reserved-20, 0))
		spoil()
		l.clock.Advance(time.Minute - time.Second)
		l.book(5)
		l.clock.Advance(time.Second)
		l.want(0, max(reserved+5-10, 0)) // the first lease is over
		l.clock.Advance(time.Minute)
		l.want(0, 0)
		l.book(100)
		l.want(0, 100)
	}
}
