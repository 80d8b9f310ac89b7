package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// target is one way to the vendor.
type target struct{ name, url, key, model string }

// prompt is about 2 KB, a common size of a call with instructions.
var prompt = strings.Repeat("Summarise the following paragraph for a busy reader. ", 40)

// call makes one call and returns the time to the whole answer, or to the first token of a stream.
func (t target) call(ctx context.Context, client *http.Client, stream bool) (time.Duration, error) {
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":%q}]}`, t.model, stream, prompt)
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+t.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return 0, fmt.Errorf("%s answered %d: %s", t.name, resp.StatusCode, text)
	}
	if !stream {
		_, err := io.Copy(io.Discard, resp.Body)
		return time.Since(began), err
	}
	var first time.Duration
	whole := false
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if first == 0 && strings.Contains(lines.Text(), `"content":"t`) {
			first = time.Since(began)
		}
		whole = whole || lines.Text() == "data: [DONE]"
	}
	if first == 0 || !whole {
		return 0, fmt.Errorf("%s sent a broken stream (%v)", t.name, lines.Err())
	}
	return first, nil
}

// samples are the times of one target, sorted, in milliseconds.
type samples struct {
	name  string
	times []float64
}

func (s samples) at(quantile float64) float64 {
	return s.times[min(int(quantile*float64(len(s.times))), len(s.times)-1)]
}

// warmUp calls of each target are not counted: they fill pools and caches.
const warmUp = 200

// alternate calls the targets in turn.
func alternate(ctx context.Context, calls int, stream bool, targets ...target) ([]samples, error) {
	client := newClient()
	defer client.CloseIdleConnections()
	out := make([]samples, len(targets))
	for i, t := range targets {
		out[i].name = t.name
	}
	for n := range calls + warmUp {
		for i, t := range targets {
			took, err := t.call(ctx, client, stream)
			if err != nil {
				return nil, err
			}
			if n >= warmUp {
				out[i].times = append(out[i].times, float64(took.Microseconds())/1000)
			}
		}
	}
	for _, s := range out {
		slices.Sort(s.times)
	}
	return out, nil
}

// load makes calls in parallel and returns how long they took together.
func load(ctx context.Context, t target, calls, parallel int, stream bool) (time.Duration, error) {
	client := newClient()
	defer client.CloseIdleConnections()
	failed := make(chan error, parallel)
	var workers sync.WaitGroup
	began := time.Now()
	for w := range parallel {
		workers.Go(func() {
			for n := w; n < calls; n += parallel {
				if _, err := t.call(ctx, client, stream); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	workers.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return time.Since(began), nil
	}
}
