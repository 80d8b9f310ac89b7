package probe

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

var (
	ioregModel       = regexp.MustCompile(`"model" = "([^"]+)"`)
	ioregUtilization = regexp.MustCompile(`"Device Utilization %"=(\d+)`)
	ioregInUse       = regexp.MustCompile(`"In use system memory"=(\d+)`)
	vmPageSize       = regexp.MustCompile(`page size of (\d+) bytes`)
	vmReclaimable    = regexp.MustCompile(`(?m)^Pages (?:free|inactive|speculative|purgeable): +(\d+)\.`)
)

// apple reads the GPU of a Mac as any user may. It tells no temperature: that needs root or a private interface.
func apple(ctx context.Context, run RunFunc) []*ktmsv1.NodeGPU {
	registry, err := run(ctx, "ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")
	if err != nil {
		return nil
	}
	memory, _ := run(ctx, "sysctl", "-n", "hw.memsize")
	// 0 means the system's own limit, and old systems do not know the name.
	limit, _ := run(ctx, "sysctl", "-n", "iogpu.wired_limit_mb")
	pages, _ := run(ctx, "vm_stat")
	return parseApple(string(registry), string(memory), string(limit), string(pages))
}

// parseApple makes one GPU of the four answers. GPU and CPU share the memory, so what the GPU can still get is bound by
// its own limit and by what the system could give away.
func parseApple(registry, memory, limit, pages string) []*ktmsv1.NodeGPU {
	model := group(ioregModel, registry)
	if model == "" && !strings.Contains(registry, "PerformanceStatistics") {
		return nil
	}
	gpu := &ktmsv1.NodeGPU{Name: model, UtilizationPercent: percent(number(group(ioregUtilization, registry)))}
	if gpu.Name == "" {
		gpu.Name = "Apple GPU"
	}
	total := bytesOf(number(memory), 1)
	if wired := number(limit); total != nil && wired != nil && *wired > 0 {
		if own := bytesOf(wired, mebibyte); own != nil {
			total = new(min(*total, *own))
		}
	}
	gpu.MemoryTotalBytes = total
	gpu.MemoryFreeBytes = minus(total, bytesOf(number(group(ioregInUse, registry)), 1))
	if reclaimable := reclaimableBytes(pages); reclaimable != nil && gpu.MemoryFreeBytes != nil {
		gpu.MemoryFreeBytes = new(min(*gpu.MemoryFreeBytes, *reclaimable))
	}
	return []*ktmsv1.NodeGPU{gpu}
}

func group(pattern *regexp.Regexp, text string) string {
	if found := pattern.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// reclaimableBytes adds up the pages of vm_stat that the system could give away.
func reclaimableBytes(pages string) *int64 {
	size := number(group(vmPageSize, pages))
	found := vmReclaimable.FindAllStringSubmatch(pages, -1)
	if size == nil || len(found) == 0 {
		return nil
	}
	var sum float64
	for _, f := range found {
		count, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return nil
		}
		sum += count
	}
	return bytesOf(&sum, *size)
}
