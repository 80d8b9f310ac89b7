package nodes_test

import (
	"context"
	"iter"
	"net/http"
	"sync"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/nodes"
	"github.com/ai-process/ktms/vendors/openai"
	"github.com/ai-process/ktms/vendors/vendortest"
)

// TestSuite holds the pool to the contract of every vendor, with one node in front of each upstream.
func TestSuite(t *testing.T) {
	for _, engine := range []string{"vllm", "ollama"} {
		t.Run(engine, func(t *testing.T) {
			vendortest.Run(t, vendortest.Subject{
				New: func(carrier http.RoundTripper) vendors.Vendor {
					if carrier != nil { // a node has connections of its own; what these cases are about is the dialect's
						return openai.New(openai.Options{Transport: carrier})
					}
					return &oneNode{engine: engine, made: map[string]*nodes.Vendor{}}
				},
				Target: func(baseURL string) vendors.Target {
					return vendors.Target{Vendor: vendors.Local, Model: "model", BaseURL: baseURL}
				},
				Script:  vendortest.OpenAI(),
				Headers: []string{"Authorization"},
			})
		})
	}
}

// oneNode makes of each target a pool with one node.
type oneNode struct {
	engine string
	mu     sync.Mutex
	made   map[string]*nodes.Vendor // by endpoint
}

func (o *oneNode) pool(t vendors.Target) (*nodes.Vendor, vendors.Target) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := t.BaseURL + t.Key.Reveal() + t.Model
	v := o.made[at]
	if v == nil {
		machines := memory.NewNodes(memory.NodesOptions{})
		if err := machines.Register(context.Background(), pool.NodeSpec{ID: "n", Engine: o.engine, Endpoint: t.BaseURL,
			Token: []byte(t.Key.Reveal()), KeyID: "k", MaxConcurrent: 100}, pool.NodeReport{Level: selection.FullLevel,
			Models: []pool.NodeModel{{ID: t.Model, Warm: true}}}); err != nil {
			panic(err)
		}
		v = nodes.New(nodes.Options{Nodes: machines, TTL: time.Hour, AllowLocal: true, Version: "test",
			Open: func(_ string, sealed []byte) (vendors.Secret, error) { return vendors.NewSecret(string(sealed)), nil }})
		o.made[at] = v
	}
	t.BaseURL, t.Key = "", vendors.Secret{}
	return v, t
}

func (o *oneNode) Generate(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) (*vendors.Answer, error) {
	v, t := o.pool(t)
	return v.Generate(ctx, t, req)
}

func (o *oneNode) Stream(ctx context.Context, t vendors.Target, req *ktmsv1.GenerateTextRequest) iter.Seq2[vendors.Event, error] {
	v, t := o.pool(t)
	return v.Stream(ctx, t, req)
}

func (o *oneNode) Embed(ctx context.Context, t vendors.Target, req *ktmsv1.GetEmbeddingsRequest) (*ktmsv1.GetEmbeddingsResponse, error) {
	v, t := o.pool(t)
	return v.Embed(ctx, t, req)
}

func (o *oneNode) Fields(vendor, model string) vendors.Table {
	return nodes.New(nodes.Options{}).Fields(vendor, model)
}

func (o *oneNode) CloseIdleConnections() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range o.made {
		v.CloseIdleConnections()
	}
}
