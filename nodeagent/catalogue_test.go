package nodeagent

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/nodeagent/engine"
)

// TestUncatalogued warns of models that no request reaches when that changes, and serves.
func TestUncatalogued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var uncatalogued []string
		forget := false
		g := &gateway{}
		g.register = func(*ktmsv1.RegisterNodeRequest) (*ktmsv1.RegisterNodeResponse, error) {
			return &ktmsv1.RegisterNodeResponse{UncataloguedModels: uncatalogued}, nil
		}
		g.beat = func(*ktmsv1.HeartbeatRequest) (*ktmsv1.HeartbeatResponse, error) {
			defer func() { forget = false }()
			return &ktmsv1.HeartbeatResponse{RegisterAgain: forget}, nil
		}
		w := start(t, g, nil)
		wait(time.Minute)
		warned := 0
		for _, c := range []struct {
			models []string
			warns  int
		}{{nil, 0}, {[]string{"a:1", "b:1"}, 1}, {[]string{"a:1", "b:1"}, 0}, {[]string{"b:1"}, 1}, {nil, 0}, {[]string{"b:1"}, 1}} {
			g.set(func() { uncatalogued, forget = c.models, true })
			g.take()
			wait(time.Minute)
			if got := names(g.take()); got != "beat vet register beat" {
				t.Errorf("without %v: calls %s", c.models, got)
			}
			const said = "requests reach these models only once an administrator adds them with UpsertModel, vendor local, under exactly this id"
			warned += c.warns
			if got := strings.Count(w.log.String(), `level=WARN msg="`+said); got != warned {
				t.Errorf("without %v: %d warnings so far, want %d", c.models, got, warned)
			}
		}
		w.end()
	})
}

// TestUnreached: a model that is catalogued under one of its names is reached.
func TestUnreached(t *testing.T) {
	t.Parallel()
	v := view{served: []engine.Model{{ID: "a:latest", Aliases: []string{"a"}}, {ID: "b:latest", Aliases: []string{"b"}}},
		models: []*ktmsv1.NodeModel{{Id: "a:latest"}, {Id: "a"}, {Id: "b:latest"}, {Id: "b"}}}
	for _, test := range [][2][]string{
		{nil, nil},
		{{"a:latest"}, nil},
		{{"a:latest", "a"}, {"a:latest", "a"}},
		{{"a", "b:latest", "b"}, {"b:latest", "b"}},
		{{"unheard"}, {"unheard"}},
	} {
		if got := v.unreached(test[0]); !slices.Equal(got, test[1]) {
			t.Errorf("of %v: %v, want %v", test[0], got, test[1])
		}
	}
}
