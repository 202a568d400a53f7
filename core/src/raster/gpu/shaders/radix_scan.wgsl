// One workgroup per digit: the counts of its blocks become offsets.

@group(0) @binding(3) var<storage, read_write> totals: array<u32>; // per digit

var<workgroup> row_length: u32;

@compute @workgroup_size(256)
fn scan_digits(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    if (thread == 0u) {
        row_length = block_count();
    }
    let length = workgroupUniformLoad(&row_length);
    var carry = 0u;
    for (var start = 0u; start < length; start += 256u) {
        let i = start + thread;
        let at = group.x * length + i;
        var value = 0u;
        if (i < length) {
            value = histogram[at];
        }
        let scan = exclusive_scan(thread, value);
        if (i < length) {
            histogram[at] = carry + scan.x;
        }
        carry += scan.y;
    }
    if (thread == 0u) {
        totals[group.x] = carry;
    }
}
