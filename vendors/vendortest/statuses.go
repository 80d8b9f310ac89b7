package vendortest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ai-process/ktms/vendors"
)

// statusCases: the vendor says no.
var statusCases = []testCase{
	{name: "status", run: func(f *fixture) {
		for status, kind := range map[int]vendors.Kind{
			400: vendors.Invalid, 401: vendors.Denied, 402: vendors.Denied, 403: vendors.Denied, 404: vendors.Denied, 408: vendors.Unavailable,
			409: vendors.Unavailable, 422: vendors.Invalid, 429: vendors.RateLimited, 500: vendors.Unavailable, 502: vendors.Unavailable,
			503: vendors.Unavailable, 504: vendors.Unavailable, 529: vendors.Unavailable,
		} {
			f.both(fmt.Sprint(status), func(f *fixture, call func(context.Context) error) {
				f.up.Reply(Respond(status, f.Script.Failure("what the vendor says"), "Content-Type", "application/json"))
				e := f.wants(call(f.Context()), kind)
				if e.Status != status || !strings.Contains(e.Message, "what the vendor says") || e.RetryAfter != 0 {
					f.Errorf("%+v", e)
				}
				if n := len(f.up.Calls()); n != 1 {
					f.Errorf("%d calls", n)
				}
			})
		}
	}},
	{name: "the dialect's own", run: func(f *fixture) {
		for _, failure := range f.Script.Failures {
			f.both(failure.Name, func(f *fixture, call func(context.Context) error) {
				f.up.Reply(Respond(failure.Status, failure.Body, "Content-Type", "application/json"))
				e := f.wants(call(f.Context()), failure.Kind)
				if e.Status != failure.Status || e.Message == "" || e.Param != failure.Param {
					f.Errorf("%+v", e)
				}
			})
		}
	}},
	{name: "wait", run: func(f *fixture) {
		for name, c := range map[string]struct {
			header []string
			wait   time.Duration
		}{
			"milliseconds":      {[]string{"Retry-After-Ms", "250"}, 250 * time.Millisecond},
			"milliseconds win":  {[]string{"Retry-After-Ms", "250", "Retry-After", "9"}, 250 * time.Millisecond},
			"seconds":           {[]string{"Retry-After", "3"}, 3 * time.Second},
			"fraction":          {[]string{"Retry-After", "0.5"}, 500 * time.Millisecond},
			"date":              {[]string{"Date", "Mon, 30 Nov 2026 12:00:00 GMT", "Retry-After", "Mon, 30 Nov 2026 12:00:20 GMT"}, 20 * time.Second},
			"negative":          {[]string{"Retry-After", "-3"}, 0},
			"not a number":      {[]string{"Retry-After", "NaN"}, 0},
			"absurd":            {[]string{"Retry-After", "99999999999"}, 0},
			"words":             {[]string{"Retry-After", "a while"}, 0},
			"used up":           {[]string{"X-Ratelimit-Remaining-Requests", "0", "X-Ratelimit-Reset-Requests", "1m30s"}, 90 * time.Second},
			"another one is up": {[]string{"X-Ratelimit-Remaining-Requests", "4", "X-Ratelimit-Reset-Requests", "1m30s"}, 0},
		} {
			f.both(name, func(f *fixture, call func(context.Context) error) {
				f.up.Reply(Respond(http.StatusTooManyRequests, f.Script.Failure("slow down"), c.header...))
				if e := f.wants(call(f.Context()), vendors.RateLimited); e.RetryAfter != c.wait {
					f.Errorf("wait %v, want %v", e.RetryAfter, c.wait)
				}
			})
		}
	}},
	{name: "wait of a busy server", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			f.up.Reply(Respond(http.StatusServiceUnavailable, f.Script.Failure("busy"), "Retry-After", "2"))
			if e := f.wants(call(f.Context()), vendors.Unavailable); e.RetryAfter != 2*time.Second {
				f.Errorf("wait %v", e.RetryAfter)
			}
		})
	}},
	{name: "body", run: func(f *fixture) {
		for name, body := range map[string]string{
			"empty":       "",
			"HTML":        "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>502</h1></body></html>",
			"text":        "upstream connect error\nor disconnect",
			"huge":        strings.Repeat("x", 1<<20),
			"half a JSON": `{"error":{"message":"what`,
			"other JSON":  `[1,2,{"a":null}]`,
		} {
			f.both(name, func(f *fixture, call func(context.Context) error) {
				f.up.Reply(Respond(http.StatusBadGateway, body))
				if e := f.wants(call(f.Context()), vendors.Unavailable); e.Message == "" {
					f.Error("no message")
				}
			})
		}
	}},
}
