package redis

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// monitor is a connection on which Redis tells every command that it gets.
type monitor struct {
	*testing.T
	address string
	lines   *bufio.Reader
}

func newMonitor(t *testing.T, address string) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(conn, "MONITOR\r\n")
	m := &monitor{T: t, address: address, lines: bufio.NewReader(conn)}
	if line, err := m.lines.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatal(line, err)
	}
	return m
}

// ofConnections are the commands of a connection that begins or is idle.
var ofConnections = regexp.MustCompile(`(?i)\] "(PING|HELLO|CLUSTER|CLIENT|SELECT|EXISTS)"`)

// commands are those that Redis got since it was last asked. What scripts do themselves is marked with lua and left out,
// as is what belongs to connections.
func (m *monitor) commands() []string {
	m.Helper()
	return slices.DeleteFunc(m.all(), func(line string) bool {
		return strings.Contains(line, " lua]") || ofConnections.MatchString(line)
	})
}

// all are those, with what scripts do and what belongs to connections.
func (m *monitor) all() []string {
	m.Helper()
	end := rand.Text()
	if _, err := pooltest.Command(m.address, "ECHO", end); err != nil {
		m.Fatal(err)
	}
	var commands []string
	for {
		line, err := m.lines.ReadString('\n')
		switch {
		case err != nil:
			m.Fatal(err)
		case strings.Contains(line, end):
			return commands
		default:
			commands = append(commands, line)
		}
	}
}

// mixed is as many counters as a call has at most: two rates, then windows.
func mixed() []pool.Charge {
	charges := []pool.Charge{requests(), requests()}
	for range 6 {
		charges = append(charges, spend(100))
	}
	for i := range charges {
		charges[i].Key = pool.Key(charges[i].Key, strconv.Itoa(i))
	}
	return charges
}

func TestEachOperationIsOneRoundTrip(t *testing.T) {
	server := pooltest.StartRedis(t)
	meter := open(t, Options{Addr: server.Addr, Timeout: patience}).Meter()
	operations := []struct {
		name string
		call func(id pool.ID) error
	}{
		{"admit and settle", func(id pool.ID) error {
			bookings, err := meter.Admit(t.Context(), id, time.Minute, mixed())
			if err != nil {
				return err
			}
			return meter.Settle(t.Context(), id, pool.Void(bookings))
		}},
		{"renew", func(pool.ID) error {
			_, end := pool.Month.At(time.Now())
			booking := pool.Booking{Charge: spend(1), Standing: pool.Standing{Start: end}}
			return meter.Renew(t.Context(), []pool.Renewal{{ID: "a", Bookings: []pool.Booking{booking, booking}}}, time.Minute)
		}},
		{"debit", func(id pool.ID) error { return meter.Debit(t.Context(), "debit-"+id, mixed()) }},
		{"read", func(pool.ID) error { _, err := meter.Read(t.Context(), mixed()); return err }},
	}
	for _, operation := range operations { // which makes the scripts and the clock known
		if err := operation.call("first"); err != nil {
			t.Fatal(err)
		}
	}
	monitor := newMonitor(t, server.Addr)
	for i, operation := range operations {
		if err := operation.call("second"); err != nil {
			t.Fatal(err)
		}
		want := 1
		if i == 0 {
			want = 2
		}
		if got := monitor.commands(); len(got) != want {
			t.Errorf("%s takes %d round trips, want %d: %q", operation.name, len(got), want, got)
		}
	}
	if _, err := meter.Admit(t.Context(), "none", time.Minute, nil); err != nil {
		t.Error(err)
	}
	if got := monitor.commands(); len(got) != 0 {
		t.Errorf("an admission under no limit asks Redis: %q", got)
	}
}

// TestClockThatIsWrong has a client whose clock is a month and more behind. It learns from the first answer.
func TestClockThatIsWrong(t *testing.T) {
	const behind = 40 * 24 * time.Hour
	server := pooltest.StartRedis(t)
	right := open(t, Options{Addr: server.Addr, Timeout: patience}).Meter()
	if err := right.Debit(t.Context(), "first", []pool.Charge{spend(1), requests()}); err != nil {
		t.Fatal(err)
	}
	wrong := open(t, Options{Addr: server.Addr, Timeout: patience})
	meter := wrong.Meter()
	monitor := newMonitor(t, server.Addr)
	lie := func(d time.Duration) {
		wrong.clock.local = func() time.Time { return time.Now().Add(d) }
		wrong.clock.ahead.Store(0)
	}
	asked := func(what string, want int) {
		t.Helper()
		commands := slices.DeleteFunc(monitor.commands(), func(line string) bool {
			return strings.Contains(line, `"EVAL" `) // which sends a script that Redis did not know
		})
		if len(commands) != want {
			t.Errorf("%s takes %d round trips, want %d: %q", what, len(commands), want, commands)
		}
	}
	for _, off := range []time.Duration{-behind, behind} {
		lie(off)
		bookings, err := meter.Admit(t.Context(), pool.ID("admit"+off.String()), time.Minute, []pool.Charge{spend(10), requests()})
		if err != nil {
			t.Fatal(err)
		}
		start, _ := pool.Month.At(time.Now())
		if b := bookings[0]; !b.Start.Equal(start) || b.Settled == 0 || b.Reset <= 0 || b.Reset > 31*24*time.Hour {
			t.Errorf("booked on %+v, want the window from %v with what was settled before", b, start)
		}
		asked("an admission with a wrong clock", 2)

		// From then on it is known how wrong the clock is, whatever is asked.
		if _, err := meter.Admit(t.Context(), pool.ID("again"+off.String()), time.Minute, []pool.Charge{spend(10)}); err != nil {
			t.Fatal(err)
		}
		asked("the next admission", 1)

		lie(off)
		if err := meter.Debit(t.Context(), pool.ID("debit"+off.String()), []pool.Charge{spend(5)}); err != nil {
			t.Fatal(err)
		}
		asked("a debit with a wrong clock", 2)

		lie(off)
		if standings, err := meter.Read(t.Context(), []pool.Charge{spend(0)}); err != nil || !standings[0].Start.Equal(start) {
			t.Errorf("read %+v, %v", standings, err)
		}
		asked("a reading with a wrong clock", 2)
	}
	standings, err := right.Read(t.Context(), []pool.Charge{spend(0)})
	if err != nil || standings[0].Settled != 1+5+5 || standings[0].Reserved != 40 {
		t.Errorf("%+v, %v; want 11 settled and 40 reserved", standings, err)
	}
}
