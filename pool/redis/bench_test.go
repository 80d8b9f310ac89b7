package redis

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

func BenchmarkMeter(b *testing.B) {
	pooltest.Bench(b, fresh(b).Meter())
}

// BenchmarkScript measures how long Redis is busy with an admission and with its settlement, as Redis counts it.
func BenchmarkScript(b *testing.B) {
	server := pooltest.StartRedis(b)
	meter := open(b, Options{Addr: server.Addr, Timeout: patience}).Meter()
	for _, counters := range []int{1, 4, 8} {
		b.Run(fmt.Sprint("counters=", counters), func(b *testing.B) {
			charges := mixed()[:counters]
			var admit, settle usage
			calls := 0
			for b.Loop() {
				// Each kind in a row of its own, so that what Redis counts is of one kind.
				const row = 100
				booked := make([][]pool.Booking, row)
				admit.add(b, server.Addr, func() {
					for n := range row {
						var err error
						booked[n], err = meter.Admit(b.Context(), rowID(counters, calls+n), time.Minute, charges)
						if err != nil {
							b.Fatal(err)
						}
					}
				})
				settle.add(b, server.Addr, func() {
					for n := range row {
						var actuals []pool.Actual
						for _, booking := range booked[n] {
							actuals = append(actuals, pool.Actual{Booking: booking, Came: booking.Amount / 2})
						}
						if err := meter.Settle(b.Context(), rowID(counters, calls+n), actuals); err != nil {
							b.Fatal(err)
						}
					}
				})
				calls += row
			}
			admit.report(b, "admit")
			settle.report(b, "settle")
			b.ReportMetric(0, "ns/op") // of a row, which says nothing
		})
	}
}

func rowID(counters, n int) pool.ID { return pool.ID(fmt.Sprint("attempt-", counters, "-", n)) }

// usage is the time that Redis spent in scripts.
type usage struct {
	micros, calls int
	// medians is the sum of each row's median, which a machine that is busy with other things distorts less.
	medians float64
	rows    int
	// cpu is how many seconds the server's processor worked for it outside of the kernel, everything around the script
	// included. Other work on the machine does not distort it.
	cpu float64
}

var (
	evalsha = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)
	cpuUser = regexp.MustCompile(`used_cpu_user_main_thread:([\d.]+)`)
	median  = regexp.MustCompile(`latency_percentiles_usec_evalsha:p50=([\d.]+)`)
)

func (u *usage) add(b *testing.B, address string, work func()) {
	b.Helper()
	if _, err := pooltest.Command(address, "CONFIG", "RESETSTAT"); err != nil {
		b.Fatal(err)
	}
	worked := func() float64 {
		stats, err := pooltest.Command(address, "INFO", "cpu")
		if err != nil {
			b.Fatal(err)
		}
		seconds, _ := strconv.ParseFloat(cpuUser.FindStringSubmatch(stats)[1], 64)
		return seconds
	}
	before := worked()
	work()
	u.cpu += worked() - before
	find := func(section string, what *regexp.Regexp) []string {
		stats, err := pooltest.Command(address, "INFO", section)
		if err != nil {
			b.Fatal(err)
		}
		found := what.FindStringSubmatch(stats)
		if found == nil {
			b.Fatalf("no scripts in %s", stats)
		}
		return found
	}
	all := find("commandstats", evalsha)
	calls, _ := strconv.Atoi(all[1])
	micros, _ := strconv.Atoi(all[2])
	middle, _ := strconv.ParseFloat(find("latencystats", median)[1], 64)
	u.calls += calls
	u.micros += micros
	u.medians += middle
	u.rows++
}

func (u *usage) report(b *testing.B, name string) {
	b.ReportMetric(float64(u.micros)/float64(u.calls), "us/"+name)
	b.ReportMetric(u.medians/float64(u.rows), "us/"+name+"-median")
	b.ReportMetric(u.cpu*1e6/float64(u.calls), "us/"+name+"-cpu")
}
