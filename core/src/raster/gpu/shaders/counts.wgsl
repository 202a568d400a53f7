// Sums of blocks of 256 become offsets; the totals decide how many workgroups the passes after this get. One workgroup.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<storage, read_write> block_sums: array<u32>;
@group(0) @binding(2) var<storage, read_write> counts: array<u32>;
// Three per indirect dispatch, in the order of the host's enum Indirect.
@group(0) @binding(3) var<storage, read_write> dispatches: array<u32>;

var<workgroup> blocks: u32;

fn set_dispatch(which: u32, groups: u32) {
    dispatches[3u * which] = min(groups, FOLD);
    dispatches[3u * which + 1u] = (groups + FOLD - 1u) / FOLD;
    dispatches[3u * which + 2u] = 1u;
}

fn divide_up(a: u32, b: u32) -> u32 {
    return a / b + select(0u, 1u, a % b > 0u);
}

// Makes offsets of the first `blocks` sums, sixteen per thread at a time; returns the sum of all.
fn scan_blocks(thread: u32) -> u32 {
    let count = workgroupUniformLoad(&blocks);
    var carry = 0u;
    for (var start = 0u; start < count; start += 4096u) {
        let first = start + thread * 16u;
        var sum = 0u;
        for (var i = first; i < min(first + 16u, count); i++) {
            sum = saturating_add(sum, block_sums[i]);
        }
        let scan = exclusive_scan(thread, sum);
        var before = saturating_add(carry, scan.x);
        for (var i = first; i < min(first + 16u, count); i++) {
            let next = block_sums[i];
            block_sums[i] = before;
            before = saturating_add(before, next);
        }
        carry = saturating_add(carry, scan.y);
    }
    return carry;
}

@compute @workgroup_size(256)
fn count_visible(@builtin(local_invocation_index) thread: u32) {
    if (thread == 0u) {
        blocks = divide_up(view.scene.x, 256u);
    }
    let visible = scan_blocks(thread);
    if (thread == 0u) {
        counts[VISIBLE] = visible;
        set_dispatch(0u, divide_up(visible, 256u));
        set_dispatch(1u, divide_up(visible, SORT_BLOCK));
    }
}

@compute @workgroup_size(256)
fn count_intersections(@builtin(local_invocation_index) thread: u32) {
    if (thread == 0u) {
        blocks = divide_up(counts[VISIBLE], 256u);
    }
    let needed = scan_blocks(thread);
    if (thread == 0u) {
        let fits = needed <= view.scene.z;
        let used = select(0u, needed, fits);
        counts[NEEDED] = needed;
        counts[INTERSECTIONS] = used;
        if (!fits) {
            counts[POISONED] = 1u;
        }
        set_dispatch(2u, divide_up(used, 256u));
        set_dispatch(3u, divide_up(used, SORT_BLOCK));
        let alive = counts[POISONED] == 0u;
        set_dispatch(4u, select(0u, divide_up(min(view.scene.x, PAGE), 256u), alive));
        set_dispatch(5u, select(0u, 1u, alive));
    }
}
