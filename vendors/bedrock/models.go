package bedrock

import (
	"regexp"
	"strconv"
	"strings"
)

// model is what an id says about a model: whose it is, and for Claude which version. Ids come with a region in front
// (us.anthropic.…) and as ARNs that end in one; the ARN of an application's own inference profile says nothing.
type model struct {
	claude, nova bool
	opus         bool
	major, minor int
}

// claudeVersion reads claude-opus-4-6-v1, claude-sonnet-4-20250514-v1:0, claude-3-5-sonnet-20240620-v1:0 and
// claude-v2:1.
var claudeVersion = regexp.MustCompile(`anthropic\.claude-(?:[a-z]+-)?v?(\d{1,2})(?:-(\d{1,2}))?(?:-|:|$)`)

// modelOf reads an id; without one it is a current Claude model.
func modelOf(id string) model {
	m := model{claude: id == "" || strings.Contains(id, "anthropic."), nova: strings.Contains(id, "amazon.nova"), opus: strings.Contains(id, "opus")}
	if version := claudeVersion.FindStringSubmatch(id); version != nil {
		m.major, _ = strconv.Atoi(version[1])
		m.minor, _ = strconv.Atoi(version[2])
	}
	return m
}

// atLeast and atMost compare versions. An id without one stands for a current model: it is neither.
func (m model) atLeast(major, minor int) bool {
	return m.major > major || m.major == major && m.minor >= minor
}

func (m model) atMost(major, minor int) bool {
	return m.claude && m.major > 0 && !m.atLeast(major, minor+1)
}

// fixedSampling: models after 4.6 refuse every temperature but 1, every top_p under 0.99, and top_k.
func (m model) fixedSampling() bool { return m.claude && m.atLeast(4, 7) }

// oneSampler: models from 4.1 on refuse temperature and top_p together.
func (m model) oneSampler() bool { return m.claude && m.atLeast(4, 1) }

// unforced: models after 5.0 refuse a tool_choice that demands a call.
func (m model) unforced() bool { return m.claude && m.atLeast(5, 1) }

// effortless: models before 4.6 know no effort, but for Opus 4.5.
func (m model) effortless() bool { return m.atMost(4, 5) && (!m.opus || !m.atLeast(4, 5)) }

// unstructured: models before 4.1 follow no schema by themselves.
func (m model) unstructured() bool { return m.atMost(4, 0) }
