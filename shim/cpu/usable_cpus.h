// How many processors this process may really use.
#pragma once

namespace dspark::cpu {

// The smallest of: processors of the machine, of the affinity mask, of the cgroup's quota (rounded up); at least 1.
int usable_cpus();

} // namespace dspark::cpu
