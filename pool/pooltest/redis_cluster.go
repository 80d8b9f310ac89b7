package pooltest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clusterSlots is how many parts a Redis Cluster divides its keys into.
const clusterSlots = 16384

// StartCluster starts a Redis Cluster of three masters, of the test's own, and returns their addresses.
func StartCluster(t testing.TB) []string {
	t.Helper()
	const nodes = 3
	var addresses []string
	for range nodes {
		server := StartRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "15000",
			"--cluster-port", strconv.Itoa(clusterPort(t)))
		addresses = append(addresses, server.Addr)
	}
	ask := func(address string, words ...string) string {
		t.Helper()
		answer, err := Command(address, words...)
		if err != nil {
			t.Fatalf("make a cluster: %s: %v", strings.Join(words, " "), err)
		}
		return answer
	}
	for i, address := range addresses {
		first, last := i*clusterSlots/nodes, (i+1)*clusterSlots/nodes-1
		ask(address, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		ask(address, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, address := range addresses[1:] {
		port := strings.TrimPrefix(address, "127.0.0.1:")
		bus := strings.Split(ask(address, "CONFIG", "GET", "cluster-port"), "\n")[1]
		ask(addresses[0], "CLUSTER", "MEET", "127.0.0.1", port, bus)
	}
	for _, address := range addresses {
		var state string
		for deadline := time.Now().Add(redisWithin); ; time.Sleep(20 * time.Millisecond) {
			state = ask(address, "CLUSTER", "INFO")
			if strings.Contains(state, "cluster_state:ok") && strings.Contains(state, fmt.Sprintf("cluster_size:%d", nodes)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the cluster does not come up: %s", state)
			}
		}
	}
	return addresses
}

// clusterPort is a free port for the nodes' talk, which otherwise is 10000 above the other and may be none at all.
func clusterPort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
