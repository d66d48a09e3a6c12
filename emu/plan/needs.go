package plan

import "fmt"

// FeatureKind is a kind of Feature.
type FeatureKind string

// The kinds of features, as doctor prints them.
const (
	QueueingDiscipline FeatureKind = "qdisc"
	CongestionControl  FeatureKind = "TCP"
)

// Feature is a part that a kernel may lack.
type Feature struct {
	Kind FeatureKind
	Name string // in tc(8) or tcp(7): "netem", "cubic"
}

func (f Feature) String() string { return string(f.Kind) + " " + f.Name }

// Module returns the name of the kernel module with the feature.
func (f Feature) Module() string {
	if f.Kind == QueueingDiscipline {
		return "sch_" + f.Name
	}
	return "tcp_" + f.Name
}

// Need is a feature that a plan requires.
type Need struct {
	Feature Feature
	For     string // first device or host that needs it, and the number of others
	Key     string // key of a fabric that requires it; "" if every fabric does
}

// Needs returns the features that the kernel must have to build the plan, each once, in order
// of first use.
func (p *Plan) Needs() []Need {
	var needs []Need
	count := map[Feature]int{}
	note := func(kind FeatureKind, name, key, user string) {
		f := Feature{kind, name}
		if count[f]++; count[f] == 1 {
			needs = append(needs, Need{Feature: f, For: user, Key: key})
		}
	}
	qdisc := func(name, key, namespace, device string) {
		note(QueueingDiscipline, name, key, namespace+"/"+device)
	}
	for _, op := range p.Ops() {
		switch op := op.(type) {
		case Delay:
			qdisc("netem", "delay", op.Namespace, op.Device)
		case Shaper:
			if op.Packets > 0 {
				qdisc("netem", "link_model", op.Namespace, op.Device)
			} else {
				qdisc("tbf", "", op.Namespace, op.Device)
			}
		case RED:
			qdisc("red", "red", op.Namespace, op.Device)
		case Route:
			if op.Congestion != "" {
				note(CongestionControl, op.Congestion, "congestion_control", op.Namespace)
			}
		}
	}
	for i, n := range needs {
		if more := count[n.Feature] - 1; more > 0 {
			needs[i].For += fmt.Sprintf(" and %d more", more)
		}
	}
	return needs
}
