package servertest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/noderegistry"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/vendors/guarded"
)

// nodeToken is the token of every test node's engine: a canary that is seen nowhere but sealed.
const nodeToken = "node-canary-0123456789abcdef"

// machines is a pool that can be away.
type machines struct {
	pool.Nodes
	away atomic.Bool
	// resealing, if set, goes before Reseal.
	resealing atomic.Pointer[func() error]
}

func (m *machines) lost() error {
	if m.away.Load() {
		return fmt.Errorf("10.9.8.7:6379 refused: %w", pool.ErrUnavailable)
	}
	return nil
}

func (m *machines) Register(ctx context.Context, spec pool.NodeSpec, report pool.NodeReport) error {
	if err := m.lost(); err != nil {
		return err
	}
	return m.Nodes.Register(ctx, spec, report)
}

func (m *machines) Remove(ctx context.Context, id, keyID string) (bool, error) {
	if err := m.lost(); err != nil {
		return false, err
	}
	return m.Nodes.Remove(ctx, id, keyID)
}

func (m *machines) Drain(ctx context.Context, id string, drained bool) error {
	if err := m.lost(); err != nil {
		return err
	}
	return m.Nodes.Drain(ctx, id, drained)
}

func (m *machines) Reseal(ctx context.Context, id string, former, token []byte) (bool, error) {
	if before := m.resealing.Load(); before != nil {
		if err := (*before)(); err != nil {
			return false, err
		}
	}
	return m.Nodes.Reseal(ctx, id, former, token)
}

func (m *machines) Fleet(ctx context.Context) (pool.Fleet, error) {
	if err := m.lost(); err != nil {
		return pool.Fleet{}, err
	}
	return m.Nodes.Fleet(ctx)
}

// names is a DNS of a few hosts.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) (addrs []netip.Addr, err error) {
	for _, text := range n[host] {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	if addrs == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.0.0.53:53", IsNotFound: true}
	}
	return addrs, nil
}

// guardedBy checks endpoints with the guard that dials them.
func guardedBy(options guarded.Options) func(context.Context, string, []netip.Prefix) (string, error) {
	return noderegistry.Guarded(func(allowed []netip.Prefix) noderegistry.Guard {
		options.Allowed = allowed
		return guarded.New(options)
	}, guarded.ErrForbidden)
}

// dns knows a public host, a private one, and one that is both.
var dns = names{"gpu.example.com": {"8.8.8.8"}, "db.example.com": {"10.0.0.5"}, "both.example.com": {"8.8.8.8", "169.254.169.254"}}

// joined is a server with a pool of machines.
type joined struct {
	*servertest.Instance
	machines *machines
	log      *safeBuffer
}

// withMachines starts a server; change may be nil.
func withMachines(t *testing.T, change func(*server.Options)) *joined {
	t.Helper()
	out := &joined{log: &safeBuffer{}}
	options := servertest.Defaults(t)
	options.Log = slog.New(slog.NewTextHandler(out.log, nil))
	options.Nodes = &machines{Nodes: memory.NewNodes(memory.NodesOptions{})}
	options.NodePool = server.NodePool{Interval: 5 * time.Second, TTL: 15 * time.Second, Sweep: time.Second,
		CheckEndpoint: guardedBy(guarded.Options{Resolver: dns})}
	if change != nil {
		change(&options)
	}
	out.machines, _ = options.Nodes.(*machines)
	out.Instance = servertest.Start(t, options)
	return out
}

// registry is the door of the nodes for a key.
func (j *joined) registry(t *testing.T, key string, options ...connecthttp.Option) ktmsv1connect.NodeRegistryServiceClient {
	t.Helper()
	return ktmsv1connect.NewNodeRegistryServiceClient(j.Client(t, key, options...))
}

// node is a registration that is taken.
func node(id string, ids ...string) *ktmsv1.RegisterNodeRequest {
	req := &ktmsv1.RegisterNodeRequest{NodeId: id, Engine: "ollama", Endpoint: "http://gpu.example.com:11434/v1", AuthToken: nodeToken}
	for _, model := range ids {
		req.Models = append(req.Models, &ktmsv1.NodeModel{Id: model})
	}
	return req
}

// join mints a key of the node's own id, and registers it.
func (j *joined) join(t *testing.T, id string, models ...string) (key string) {
	t.Helper()
	key = mintNode(t, j.Instance, id, id)
	if _, err := j.registry(t, key).RegisterNode(t.Context(), node(id, models...)); err != nil {
		t.Fatal(err)
	}
	return key
}

// nodes lists what an administrator sees.
func (j *joined) nodes(t *testing.T) []*ktmsv1.Node {
	t.Helper()
	list, err := j.Admin.ListNodes(t.Context(), &ktmsv1.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return list.GetNodes()
}

// sealedToken is a node's token as the pool keeps it.
func (j *joined) sealedToken(t *testing.T, id string) []byte {
	t.Helper()
	fleet, err := j.machines.Nodes.Fleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(fleet.Nodes, func(n pool.Node) bool { return n.ID == id })
	if i < 0 {
		t.Fatalf("there is no node %q", id)
	}
	return fleet.Nodes[i].Token
}

// control is the control plane for a key.
func (j *joined) control(t *testing.T, key string) ktmsv1connect.AdminServiceClient {
	t.Helper()
	return ktmsv1connect.NewAdminServiceClient(j.Client(t, key))
}

// counted are the nodes by state, as they are exported.
func (j *joined) counted(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := j.Metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "ktms_nodes" {
			continue
		}
		for _, metric := range family.GetMetric() {
			out[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return out
}
